"""Checks an estimator's arguments and makes one Submission of them. It only reads the directories that it checks, and writes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paceline.contract.hyperparameters import from_wire
from paceline.errors import UsageError
from paceline.facts import Channel, Contract, Job, Program, ProgramKind
from paceline.job_file import JobFile
from paceline.parts.engines.submission import Submission
from paceline.parts.sagemaker.estimator import limits
from paceline.parts.sagemaker.estimator.arguments import shown, without_meaning
from paceline.parts.sagemaker.estimator.distribution import Distribution, read_distribution
from paceline.parts.sagemaker.estimator.inputs import as_url, channels_of, checked_input_mode
from paceline.parts.sagemaker.estimator.instances import (
    LOCAL_GPU,
    RequestedMachines,
    check_groups,
    machines_of,
    ranks_per_host,
)
from paceline.parts.sagemaker.estimator.sagemaker_fields import check_versions, platform_of

CHECKPOINTS = "/opt/ml/checkpoints"
_ONE_PER_GPU = "distribution={'torch_distributed': {'enabled': True}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The checked arguments of one estimator."""

    class_name: str
    """Name of the estimator's class."""
    values: Mapping[str, Any]
    """Every argument by its name, with the given value."""
    machines: RequestedMachines
    """The hosts of the job."""
    distribution: Distribution
    """The strategy that `distribution=` asks for."""
    per_host: str
    """Ranks on each host in the form of --nproc-per-node: a number, or gpu, cpu, auto."""
    hyperparameters: Mapping[str, Any]
    """The user's own hyperparameters, encoded for the job."""
    environment: Mapping[str, str]
    """Environment variables of every rank, including those of the distribution."""
    metrics: tuple[tuple[str, str], ...]
    """Name and regular expression of each metric that SageMaker reads from the log."""
    max_run_seconds: float
    """Time limit of the job."""
    profile: str
    """The SDK version whose encoding the hyperparameters get: v2 or v3."""
    notices: tuple[str, ...]
    """Notices about the arguments, each shown once."""


def wishes_of(class_name: str, values: Mapping[str, Any], engines: Sequence[str], *, profile: str = "v2") -> JobSpec:
    """Check every argument that can be checked without reading a file of the user's.

    Raises:  UsageError U02, U31, U32, depending on the argument
    """
    machines = machines_of(values, engines)
    kind = machines.instance_type or (machines.groups[0].instance_type if machines.groups else None)
    distribution = read_distribution(values.get("distribution"), class_name=class_name, instance_type=kind)
    if (
        profile == "v3"
        and distribution.strategy == "mpi"
        and not values["distribution"]["mpi"].get("processes_per_host")
    ):
        # Without a given number, v2 starts one rank per host, and v3 starts one rank per GPU.
        distribution = replace(distribution, every_gpu=True, per_host=None)
    check_groups(machines, distribution)
    limits.check_network(values.get("subnets"), values.get("security_group_ids"))
    checked_input_mode(values.get("input_mode"))
    check_versions(class_name, values)
    _check_sizes(values)
    if values.get("base_job_name") is not None:
        limits.check_job_name(values["base_job_name"], "base_job_name")
    _check_checkpoints(values, machines)
    _check_entry_point(values.get("entry_point"), distribution)
    per_host = ranks_per_host(machines, distribution, values.get("processes_per_instance"))
    users = limits.check_hyperparameters(values.get("hyperparameters"))
    return JobSpec(
        class_name=class_name,
        values=values,
        machines=machines,
        distribution=distribution,
        per_host=per_host,
        hyperparameters=_encoded(class_name, users, values.get("source_dir")),
        environment={**distribution.environment, **limits.check_environment(values.get("environment"))},
        metrics=limits.check_metric_definitions(values.get("metric_definitions")),
        max_run_seconds=limits.check_times(
            values.get("max_run"),
            values.get("max_wait"),
            values.get("use_spot_instances"),
            values.get("max_retry_attempts"),
        ),
        profile=profile,
        notices=(*distribution.notices, *_notices(class_name, values, machines, distribution, per_host)),
    )


def with_notices(spec: JobSpec, notices: Sequence[str]) -> JobSpec:
    """The same job, with these notices before its own."""
    return replace(spec, notices=(*notices, *spec.notices))


def job_channels(spec: JobSpec, inputs: object, directory: Path) -> tuple[tuple[Channel, ...], tuple[str, ...]]:
    """The channels of one fit(), including the channel of model_uri, and the notices about them.

    Raises:  UsageError U06
    """
    values = spec.values
    local = spec.machines.engine == "local"
    options: dict[str, Any] = {"on_sagemaker": spec.machines.on_sagemaker, "here": local, "directory": directory}
    channels, notices = channels_of(inputs, input_mode=str(values.get("input_mode", "File")), **options)
    if values.get("model_uri") is not None:
        model, more = channels_of({values["model_channel_name"]: values["model_uri"]}, input_mode="File", **options)
        if any(channel.name == model[0].name for channel in channels):
            raise UsageError(
                "U06",
                f"two channels are called {model[0].name}",
                saw="model_uri and fit()",
                next="model_channel_name='pretrained'",
            )
        channels, notices = (*channels, *model), (*notices, *more)
    return channels, notices


def job_submission(
    spec: JobSpec, *, run_id: str, job_name: str, script: str, channels: Sequence[Channel], directory: Path, run_dir: Path,
    options: Mapping[str, str], more_platform: Mapping[str, Any] | None = None,
) -> Submission:  # fmt: skip
    """The job in the form that an engine takes. Equal arguments give an equal job."""
    values, machines = spec.values, spec.machines
    parameters = dict(spec.distribution.parameters)
    if values.get("container_log_level", 20) != 20:
        parameters["sagemaker_container_log_level"] = values["container_log_level"]
    hyperparameters = {**spec.hyperparameters, **_model_dir(spec, job_name, run_dir, directory), **parameters}
    output = values.get("output_path")
    checkpoints = values.get("checkpoint_s3_uri")
    job = Job(
        name=job_name,
        program=Program(kind=ProgramKind.SCRIPT, target=script, arguments=tuple(values.get("script_arguments", ()))),
        max_run_seconds=spec.max_run_seconds,
        tf_config=_tf_config(spec),
        output_url=as_url(str(output), directory) if output is not None else None,
        checkpoint_url=as_url(str(checkpoints), directory) if checkpoints is not None else None,
        # The script is in the shipped directory, and so is its requirements.txt, which is installed on the hosts.
        contract=Contract(
            hyperparameters=hyperparameters,
            profile=spec.profile,
            channels=tuple(channels),
            code_dir=".",
            # As in a container of SageMaker's local mode. On other engines the hosts' own /opt/ml may be in use.
            shown_at_opt_ml=machines.engine == "local",
        ),
    )
    return Submission(
        file=JobFile(job=job, ranks_per_host=spec.per_host, run_id=run_id),
        hosts=machines.hosts,
        environment=dict(spec.environment),
        retries=int(values.get("max_retry_attempts") or 0),
        engine_options=dict(options),
        platform=platform_of({**values, **(more_platform or {})}, machines, spec.metrics, job_name),
    )


def new_job_name(base: str, now_ns: int) -> str:
    """The base and the time to the millisecond, cut to the length that SageMaker accepts.

    Holds:   len(new_job_name(base, now)) <= 63
    """
    stamp = (
        datetime.fromtimestamp(now_ns // 10**9, UTC).strftime("%Y-%m-%d-%H-%M-%S") + f"-{now_ns // 10**6 % 1000:03d}"
    )
    return f"{base[: limits.LONGEST_NAME - len(stamp) - 1].rstrip('-')}-{stamp}"


def _tf_config(spec: JobSpec) -> str | None:
    # The module of smdistributed finds its ranks without it, and TensorFlow would behave in another way with it.
    if spec.class_name != "TensorFlow" or spec.distribution.strategy == "smdistributed":
        return None
    return "parameter_server" if spec.distribution.strategy == "parameter_server" else "multi_worker_mirrored"


def _encoded(class_name: str, users: dict[str, Any], source_dir: object) -> dict[str, Any]:
    """SDK v2's generic Estimator encodes values as JSON only with a source_dir, and with Python's str() without one."""
    if class_name == "Estimator" and source_dir is None:
        return from_wire({key: str(value) for key, value in users.items()})
    return users


def _model_dir(spec: JobSpec, job_name: str, run_dir: Path, directory: Path) -> dict[str, str]:
    """TensorFlow's --model_dir: the user's value, else the output path, else a directory of the run on this machine."""
    if spec.class_name != "TensorFlow":
        return {}
    said = spec.values.get("model_dir")
    if said is False:
        return {}
    if said is not None:
        return {"model_dir": str(said)}
    output = spec.values.get("output_path")
    if output is not None:
        return {"model_dir": f"{as_url(str(output), directory).rstrip('/')}/{job_name}/model"}
    return {"model_dir": str(run_dir / "model")} if spec.machines.engine == "local" else {}


def _check_entry_point(entry: object, distribution: Distribution) -> None:
    if entry is None:
        raise UsageError(
            "U02",
            "entry_point names the script",
            saw="no entry_point; a container's own program is not run",
            next="entry_point='train.py'",
        )
    text = str(entry)
    if not text.endswith((".py", ".sh")):
        raise UsageError(
            "U02",
            f"entry_point {text} is no script",
            saw="a name that ends in neither .py nor .sh",
            next="entry_point='train.py'",
        )
    # SageMaker's own library runs a shell script once for each rank, as paceline does. torchrun and DDP have no such form there.
    if distribution.every_gpu and distribution.strategy != "smdistributed" and not text.endswith(".py"):
        saw = f"{text} with {distribution.strategy}"
        raise UsageError("U02", "ranks of torch are Python scripts", saw=saw, next="entry_point='train.py'")


def _check_checkpoints(values: Mapping[str, Any], machines: RequestedMachines) -> None:
    path, url = values.get("checkpoint_local_path"), values.get("checkpoint_s3_uri")
    if path is not None and url is None:
        raise UsageError(
            "U31",
            "checkpoint_local_path is the directory that checkpoint_s3_uri is kept in step with",
            saw=f"{path}, and no checkpoint_s3_uri",
            next="checkpoint_s3_uri='s3://BUCKET/PREFIX'",
        )
    if path not in (None, CHECKPOINTS) and not machines.on_sagemaker:
        raise UsageError(
            "U31",
            "the checkpoints directory lies in the job's own tree here",
            saw=f"checkpoint_local_path={path!r}",
            next="leave it out; the script finds it below $SAGEMAKER_BASE_DIR/checkpoints",
        )
    for name in ("checkpoint_s3_uri", "output_path"):
        value = values.get(name)
        if value is None:
            continue
        if not isinstance(value, str | Path) or not str(value):
            raise UsageError("U31", f"{name} is an address", saw=shown(value), next=f"{name}='s3://BUCKET/PREFIX'")
        if machines.on_sagemaker and not str(value).startswith(("s3://", "file://")):
            raise UsageError(
                "U31", f"{name} on SageMaker is an address in S3", saw=str(value), next=f"{name}='s3://BUCKET/PREFIX'"
            )


def _check_sizes(values: Mapping[str, Any]) -> None:
    keep, volume, level = (
        values.get(name) for name in ("keep_alive_period_in_seconds", "volume_size", "container_log_level")
    )
    if keep is not None and not (isinstance(keep, int) and 0 <= keep <= 21600):
        raise UsageError(
            "U31",
            "keep_alive_period_in_seconds is a number from 0 to 21600",
            saw=shown(keep),
            next="keep_alive_period_in_seconds=1800",
        )
    if keep and values.get("use_spot_instances"):
        saw = f"keep_alive_period_in_seconds={keep}, use_spot_instances=True"
        raise UsageError("U31", "a warm pool cannot be of spare capacity", saw=saw, next="leave one of the two out")
    if keep and values.get("instance_groups"):
        raise UsageError(
            "U31",
            "a warm pool cannot have instance_groups",
            saw=f"keep_alive_period_in_seconds={keep}",
            next="leave one of the two out",
        )
    if volume is not None and not limits.is_count(volume):
        raise UsageError("U31", "volume_size is a number of GB", saw=shown(volume), next="volume_size=30")
    if not isinstance(level, int | type(None)) or isinstance(level, bool):
        raise UsageError(
            "U31",
            "container_log_level is a level of Python's logging",
            saw=shown(level),
            next="container_log_level=logging.INFO",
        )


def _notices(
    class_name: str, values: Mapping[str, Any], machines: RequestedMachines, distribution: Distribution, per_host: str
) -> tuple[str, ...]:
    found = []
    if idle := without_meaning(class_name, values, machines.on_sagemaker):
        found.append(
            f"without meaning {'here' if machines.on_sagemaker else 'off SageMaker'}, left aside: {', '.join(idle)}"
        )
    if per_host == "1" and distribution.strategy == "plain" and (machines.gpus_per_host or 0) > 1:
        found.append(f"one process on a host of {machines.gpus_per_host} GPUs; {_ONE_PER_GPU} starts one per GPU")
    if values.get("command") is not None and values.get("hyperparameters"):
        found.append(
            "the command gets no hyperparameters as arguments, as on SageMaker: read SM_HPS in the script, or name entry_script"
        )
    if machines.engine == "local" and machines.instance_type == LOCAL_GPU and machines.hosts > 1:
        found.append(f"{machines.hosts} hosts on this machine share its GPUs")
    return tuple(found)
