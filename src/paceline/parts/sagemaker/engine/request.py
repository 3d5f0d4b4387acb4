"""Makes the CreateTrainingJob request of a job. Pure: `<region>` and `<account>` are placeholders until the request is sent."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from paceline.contract.hyperparameters import to_wire
from paceline.contract.tree import CODE_CHANNEL
from paceline.errors import UsageError
from paceline.facts import Channel
from paceline.job_file import JobFile, job_document
from paceline.parts.engines.submission import Submission, host_file
from paceline.recording.layout import STATE_FOLDER
from paceline.storage.urls import below_checkpoints

# What a notebook has for a role where there is no AWS account.
NO_ROLE = "arn:aws:iam::000000000000:role/no-aws-account-here"
REGION, ACCOUNT, HIDDEN = "<region>", "<account>", "***"
OPTIONS = (
    "region", "role", "bucket", "prefix", "image", "instance_type", "volume_size", "keep_alive", "spot", "max_wait", "start", "wheel",
    "profile", "endpoint_url", "s3_endpoint_url",
)  # fmt: skip
ENTRY_FILE, JOB_FILE, TOKEN_FILE = "paceline_entry.py", "paceline_job.json", "paceline_token"
ARCHIVE = "sourcedir.tar.gz"
# The image's training toolkit starts the entry point, or SageMaker itself starts it as the container's first process.
TOOLKIT, DIRECT = "toolkit", "direct"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
DEFAULT_MAX_RUN_SECONDS = 86400
_MOST_RUN_SECONDS = 28 * 86400
_DEFAULT_VOLUME_GB = 30
_NAME_CHARACTERS = 63
_CHECKPOINTS = "/opt/ml/checkpoints"
_MOST = {"HyperParameters": 100, "Environment": 100, "InputDataConfig": 20}
_LONGEST = {"HyperParameters": (256, 2500), "Environment": (512, 512)}
# With these hyperparameters the toolkit would start the ranks itself, with mpirun or torchrun. paceline's agent starts them instead.
_LAUNCHERS = frozenset(
    f"sagemaker_{name}_enabled"
    for name in (
        "mpi", "pytorch_ddp", "torch_distributed", "distributed_dataparallel", "pytorch_xla_multi_worker", "parameter_server",
        "multi_worker_mirrored_strategy",
    )
)  # fmt: skip


def job_name(job: Submission) -> str:
    """The job's name on SageMaker: the job's own name, then the run id. The same run has the same name.

    Holds:   at most 63 characters, each a letter, a digit or a dash; the first and the last are not a dash
    """
    if "TrainingJobName" in job.platform:
        return str(job.platform["TrainingJobName"])
    end = re.sub(r"[^A-Za-z0-9]+", "-", job.run_id).strip("-")
    begin = re.sub(r"[^A-Za-z0-9]+", "-", job.name)[: _NAME_CHARACTERS - 1 - len(end)].strip("-")
    return f"{begin}-{end}" if begin else end


def document(job: Submission, options: Mapping[str, str], *, region: str | None = None) -> dict[str, Any]:
    """The request. The job's `platform` fields override ours.

    Raises:  UsageError E34: SageMaker would refuse the request, or a required field is missing
    """
    name, start = job_name(job), _start(job, options)
    root = f"s3://{options.get('bucket') or f'sagemaker-{REGION}-{ACCOUNT}'}/{options.get('prefix', 'paceline').strip('/')}"
    made: dict[str, Any] = {
        "TrainingJobName": name,
        "AlgorithmSpecification": _algorithm(options, start),
        "HyperParameters": _hyperparameters(job, f"{root}/{name}/source/{ARCHIVE}", name),
        "OutputDataConfig": {"S3OutputPath": job.output_url or root},
        "ResourceConfig": _resources(job, options),
        "StoppingCondition": {"MaxRuntimeInSeconds": math.ceil(job.max_run_seconds or DEFAULT_MAX_RUN_SECONDS)},
    }
    channels = [_channel(channel, local=bool(options.get("endpoint_url"))) for channel in job.channels]
    if start == DIRECT:
        channels.append(_code_channel(f"{root}/{name}/source/"))
    for channel in channels:
        if [other["ChannelName"] for other in channels].count(channel["ChannelName"]) > 1:
            raise _refused(
                f"two channels are called {channel['ChannelName']!r}", "each needs its own name", "rename one"
            )
    optional = {
        "RoleArn": _role(options.get("role")),
        "InputDataConfig": channels,
        "Environment": dict(job.environment),
        "CheckpointConfig": {"S3Uri": job.checkpoint_url, "LocalPath": _CHECKPOINTS} if job.checkpoint_url else {},
        "RetryStrategy": {"MaximumRetryAttempts": job.retries} if job.retries else {},
        "EnableManagedSpotTraining": options.get("spot", "").lower() in ("1", "true", "yes"),
    }
    made |= {key: value for key, value in optional.items() if value}
    made = merged(made, _without_launchers(job.platform))
    if made.get("EnableManagedSpotTraining"):
        limits = made["StoppingCondition"]
        limits.setdefault("MaxWaitTimeInSeconds", _number("max_wait", options, limits["MaxRuntimeInSeconds"]))
    _check(made, options)
    # The request is printed by --dry-run and kept. The ranks' variables may be secret, so their values are filled in when it is sent.
    if job.environment:
        made["Environment"] = {**made["Environment"], **dict.fromkeys(job.environment, HIDDEN)}
    return located(made, region=region)


def container_file(job: Submission) -> JobFile:
    """The job file for every container. SageMaker delivers data and hyperparameters. The entry point fills in the contract's tree."""
    switches = {**job.hyperparameters, **_wire_values(job.platform.get("HyperParameters", {}))}
    moved = {key: switches[key] for key in sorted(_LAUNCHERS & switches.keys())}
    file = host_file(job)
    own = replace(
        file.job,
        min_hosts=1,
        max_hosts=1,
        output_url=None,
        checkpoint_url=None,
        # SageMaker keeps the checkpoint bucket in sync with the directory, including deletions.
        checkpoints_delete=False,
        state_dir=_state_dir(job),
        contract=replace(file.job.contract, hyperparameters=moved, channels=()),
    )
    return replace(file, job=own)


def _state_dir(job: Submission) -> str | None:
    """Where a container saves steps, in the directory that SageMaker brings into the next container; None: it brings none."""
    given = {"S3Uri": job.checkpoint_url, **job.platform.get("CheckpointConfig", {})}
    if not (job.file.job.resume and given["S3Uri"]):
        return None
    return below_checkpoints(given.get("LocalPath", _CHECKPOINTS), STATE_FOLDER)


def job_file(job: Submission, wheel: str) -> str:
    """The text that the entry point reads: the job, and the name of paceline's wheel."""
    content = {
        "schema": "paceline.container/2",
        "run_id": job.run_id,
        "job": job_document(container_file(job)),
        "wheel": wheel,
    }
    return json.dumps(content, indent=1) + "\n"


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """`ours` with the values of `theirs`. Objects are merged field by field, and all other values are replaced.

    Holds:   merged(a, {}) == a; merged({}, a) == a
    """
    both = dict(ours)
    for key, value in theirs.items():
        mine = both.get(key)
        both[key] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return both


def located(made: Mapping[str, Any], *, region: str | None = None, account: str | None = None) -> dict[str, Any]:
    """The request with region and account filled in, in our own fields: addresses, the role, and two hyperparameters."""

    def fill(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item) for item in value]
        if isinstance(value, str):
            value = value.replace(REGION, region) if region else value
            return value.replace(ACCOUNT, account) if account else value
        return value

    ours = ("OutputDataConfig", "RoleArn", "InputDataConfig")
    filled = {key: fill(value) if key in ours else value for key, value in made.items()}
    wire = dict(made["HyperParameters"])
    for key in ("sagemaker_region", "sagemaker_submit_directory"):
        wire[key] = fill(wire[key])
    return {**filled, "HyperParameters": wire}


def archive_url(made: Mapping[str, Any]) -> str:
    """The URL of the code archive, from the request."""
    return str(json.loads(made["HyperParameters"]["sagemaker_submit_directory"]))


def _algorithm(options: Mapping[str, str], start: str) -> dict[str, Any]:
    found: dict[str, Any] = {"TrainingInputMode": "File"}
    if image := options.get("image"):
        found["TrainingImage"] = image
    if start == DIRECT:
        found["ContainerEntrypoint"] = ["python3", f"/opt/ml/input/data/{CODE_CHANNEL}/{ENTRY_FILE}"]
    return found


def _start(job: Submission, options: Mapping[str, str]) -> str:
    chosen = options.get("start", DIRECT)
    if chosen not in (TOOLKIT, DIRECT):
        raise _refused(f"--option start={chosen} is neither {DIRECT} nor {TOOLKIT}", chosen, f"--option start={DIRECT}")
    if chosen == TOOLKIT and job.platform.get("EnableNetworkIsolation"):
        raise _refused(
            "without a network the image's toolkit cannot fetch the code",
            "EnableNetworkIsolation",
            f"--option start={DIRECT}",
        )
    return chosen


def _hyperparameters(job: Submission, archive: str, name: str) -> dict[str, str]:
    users = {key: value for key, value in job.hyperparameters.items() if key not in _LAUNCHERS}
    ours = {
        "sagemaker_program": ENTRY_FILE,
        "sagemaker_submit_directory": archive,
        "sagemaker_job_name": name,
        "sagemaker_region": REGION,
        "sagemaker_container_log_level": users.pop("sagemaker_container_log_level", 20),
    }
    return {**to_wire(users, job.profile), **to_wire(ours, "v2")}


def _without_launchers(platform: Mapping[str, Any]) -> dict[str, Any]:
    wire = {key: value for key, value in platform.get("HyperParameters", {}).items() if key not in _LAUNCHERS}
    rest = {key: value for key, value in platform.items() if key != "HyperParameters"}
    return {**rest, "HyperParameters": wire} if wire else rest


def _wire_values(wire: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, text in wire.items():
        try:
            found[key] = json.loads(text) if isinstance(text, str) else text
        except ValueError:
            found[key] = text
    return found


def _resources(job: Submission, options: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"VolumeSizeInGB": _number("volume_size", options, _DEFAULT_VOLUME_GB)}
    if "keep_alive" in options:
        found["KeepAlivePeriodInSeconds"] = _number("keep_alive", options, 0)
    if not job.platform.get("ResourceConfig", {}).get("InstanceGroups"):
        found["InstanceCount"] = job.hosts
        if kind := options.get("instance_type"):
            found["InstanceType"] = kind
    return found


def _role(role: str | None) -> str | None:
    return role if role is None or role.startswith("arn:") else f"arn:aws:iam::{ACCOUNT}:role/{role}"


def _channel(channel: Channel, *, local: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"ChannelName": channel.name, "CompressionType": "None", "RecordWrapperType": "None"}
    if channel.input_mode != "File":
        made["InputMode"] = channel.input_mode
    if "FileSystemDataSource" in channel.extra.get("DataSource", {}):
        return merged(made, channel.extra)
    if not channel.source.startswith(("s3://", "https://", "file://") if local else ("s3://", "https://")):
        raise _refused(
            f"channel {channel.name!r} is not in S3: {channel.source}",
            "SageMaker's hosts see no directory of this machine",
            f"aws s3 sync {channel.source} s3://BUCKET/{channel.name}",
        )
    source = {
        "S3DataType": channel.data_type,
        "S3Uri": channel.source,
        "S3DataDistributionType": channel.distribution,
    }
    return merged({**made, "DataSource": {"S3DataSource": source}}, channel.extra)


def _code_channel(prefix: str) -> dict[str, Any]:
    return _channel(Channel(name=CODE_CHANNEL, source=prefix), local=False)


def _number(name: str, options: Mapping[str, str], otherwise: int) -> int:
    text = options.get(name, str(otherwise))
    if not text.isdecimal():
        raise _refused(f"--option {name}={text} is not a whole number", text, f"--option {name}={otherwise}")
    return int(text)


def _check(made: Mapping[str, Any], options: Mapping[str, str]) -> None:
    """Refuse a request that the API would refuse after the upload, or hours later.

    Raises:  UsageError E34: SageMaker would refuse the request
    """
    absent = [(what, option) for is_absent, what, option in _absent(made) if is_absent]
    if absent:
        raise _refused(
            f"the job has no {' and no '.join(what for what, _ in absent)}",
            f"options given: {', '.join(sorted(options)) or 'none'}",
            " ".join(f"--option {option}" for _, option in absent),
        )
    limits, retries = made["StoppingCondition"], made.get("RetryStrategy", {}).get("MaximumRetryAttempts", 1)
    longest, wait = limits["MaxRuntimeInSeconds"], limits.get("MaxWaitTimeInSeconds")
    wrong = (
        (not 1 <= longest <= _MOST_RUN_SECONDS, f"{longest} s is no time limit for SageMaker", "1 s to 28 days", "--max-run 28d"),
        (not 1 <= retries <= 30, f"{retries} retries are more than SageMaker makes", "at most 30", "--retries 30"),
        (
            wait is not None and wait < longest,
            f"a spot job may wait {wait} s in all and run {longest} s of them",
            "MaxWaitTimeInSeconds is less than MaxRuntimeInSeconds",
            f"--option max_wait={longest}",
        ),
        (not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", made["TrainingJobName"]), "the job's name is none for SageMaker",
         made["TrainingJobName"], "--name LETTERS-DIGITS-DASHES"),
    )  # fmt: skip
    for is_wrong, what, saw, step in wrong:
        if is_wrong:
            raise _refused(what, saw, step)
    _check_sizes(made)


def _absent(made: Mapping[str, Any]) -> Iterable[tuple[bool, str, str]]:
    algorithm, resources = made["AlgorithmSpecification"], made["ResourceConfig"]
    image = "image=ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG"
    yield not (algorithm.get("TrainingImage") or algorithm.get("AlgorithmName")), "image", image
    yield made.get("RoleArn") in (None, "", NO_ROLE), "role", "role=arn:aws:iam::ACCOUNT:role/NAME"
    yield (
        not (resources.get("InstanceType") or resources.get("InstanceGroups")),
        "instance type",
        "instance_type=ml.g5.12xlarge",
    )


def _check_sizes(made: Mapping[str, Any]) -> None:
    for field, most in _MOST.items():
        entries = made.get(field, {})
        if len(entries) > most:
            raise _refused(
                f"{len(entries)} entries in {field} are more than SageMaker takes", f"at most {most}", "leave some out"
            )
        if field not in _LONGEST:
            continue
        longest_key, longest = _LONGEST[field]
        for key, text in entries.items():
            # The error has the length of the value, never the value: an environment may have secrets.
            if len(key) > longest_key or len(str(text)) > longest:
                saw = f"{len(key)} and {len(str(text))} characters; at most {longest_key} and {longest}"
                raise _refused(f"{key[:64]} is too long for {field}", saw, "put it in a file of a channel")


def _refused(what: str, saw: str, step: str) -> UsageError:
    return UsageError("E34", what, saw=saw, next=step)
