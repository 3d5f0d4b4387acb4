"""Table of the arguments of the SageMaker SDK's v2 estimators: the default of each, and how paceline treats it.

Validation, the signatures in estimator.py, docs/estimator.md and the tests use this one table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paceline.errors import UsageError
from paceline.spelling import nearest


class Treatment(StrEnum):
    """How an argument is treated: it works everywhere; on SageMaker only, elsewhere a notice; nowhere, with a notice; it is refused."""

    HONOURED = "honoured"
    SAGEMAKER = "on SageMaker; elsewhere a notice"
    NOTICE = "a notice"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an estimator."""

    name: str
    """The name in SDK v2."""
    annotation: str
    """The type annotation for editors and type checkers. If it is None alone, the argument is refused."""
    default: Any
    """The value if the argument is not given."""
    treatment: Treatment
    """How the argument is treated."""
    why: str
    """The effect of the argument, or why it is refused or has no effect."""
    only: tuple[str, ...] = ()
    """The classes that have the argument; () means all of them."""

    def belongs_to(self, class_name: str) -> bool:
        return not self.only or class_name in self.only


_H, _S, _N, _R = Treatment.HONOURED, Treatment.SAGEMAKER, Treatment.NOTICE, Treatment.REFUSED
_FRAMEWORKS = ("PyTorch", "TensorFlow")
_RECORDED = "paceline's own recording takes its place: paceline top, why, plan"
_AGENT = "paceline's agent is what a host starts, and it starts entry_point"

# fmt: off
ARGUMENTS: tuple[Argument, ...] = (
    Argument("entry_point", "str | Path | None", None, _H, "the script that every rank runs: a .py or .sh file, relative to source_dir"),
    Argument("source_dir", "str | Path | None", None, _H, "the directory that is shipped; its requirements.txt is installed on every host"),
    Argument("dependencies", "Sequence[str | Path] | None", None, _H, "directories and files that are laid beside the script"),
    Argument("git_config", "Mapping[str, Any] | None", None, _H,
             "repo, branch, commit: entry_point, source_dir and dependencies lie in that repository"),
    Argument("role", "str | None", None, _S, "the IAM role of the job"),
    Argument("instance_count", "int | None", None, _H, "number of hosts"),
    Argument("instance_type", "str | None", None, _H, "local, local_gpu, an ml. type, or with engine= the type of its machines"),
    Argument("instance_groups", "Sequence[InstanceGroup] | None", None, _S,
             "a heterogeneous cluster of at most 5 groups; elsewhere refused"),
    Argument("keep_alive_period_in_seconds", "int | None", None, _S, "a warm pool: the machines are kept for the next job"),
    Argument("volume_size", "int | None", 30, _S, "scratch disk in GB"),
    Argument("volume_kms_key", "str | None", None, _S, "key of the scratch disk"),
    Argument("output_kms_key", "str | None", None, _S, "key of the output"),
    Argument("encrypt_inter_container_traffic", "bool", False, _S, "encrypts what hosts exchange; slows all_reduce down"),
    Argument("enable_network_isolation", "bool", False, _S, "containers without a network of their own"),
    Argument("max_run", "float", 86400, _H, "seconds from the start of training; then SIGTERM to every rank, 120 s, SIGKILL"),
    Argument("max_wait", "float | None", None, _S, "spot: seconds in all, waiting included; at least max_run"),
    Argument("use_spot_instances", "bool", False, _S, "spare capacity: the job is interrupted and started again from its checkpoints"),
    Argument("max_retry_attempts", "int | None", None, _H,
             "1 to 30: the job is started again after a lost host, never after the script's own failure"),
    Argument("input_mode", "str", "File", _H, "File; FastFile and Pipe become File off SageMaker, with a notice"),
    Argument("output_path", "str | Path | None", None, _H, "directory or URL for model.tar.gz and output.tar.gz"),
    Argument("base_job_name", "str | None", None, _H, "the job's name is this and the time"),
    Argument("code_location", "str | None", None, _S, "prefix in S3 for the code"),
    Argument("tags", "Sequence[Mapping[str, str]] | Mapping[str, str] | None", None, _S, "tags of the job"),
    Argument("subnets", "Sequence[str] | None", None, _S, "with security_group_ids: the VPC of the job"),
    Argument("security_group_ids", "Sequence[str] | None", None, _S, "with subnets"),
    Argument("model_uri", "str | Path | TrainingInput | None", None, _H, "a pre-trained model as an input channel"),
    Argument("model_channel_name", "str", "model", _H, "name of that channel"),
    Argument("metric_definitions", "Sequence[Mapping[str, str]] | None", None, _H,
             "Name and Regex of what is read from the logs, at most 40"),
    Argument("checkpoint_s3_uri", "str | Path | None", None, _H, "directory or URL that the checkpoints directory is kept in step with"),
    Argument("checkpoint_local_path", "str | None", None, _S, "another checkpoints directory than /opt/ml/checkpoints"),
    Argument("environment", "Mapping[str, str] | None", None, _H, "variables of every rank, at most 100; values are never shown"),
    Argument("hyperparameters", "Mapping[str, Any] | None", None, _H,
             "the script's arguments, SM_HP_* and hyperparameters.json, at most 100"),
    Argument("container_log_level", "int | None", 20, _H, "SM_LOG_LEVEL of the script"),
    Argument("image_uri", "str | None", None, _S, "the container; elsewhere the Python that runs paceline on the host is used"),
    Argument("image_uri_region", "str | None", None, _S, "region of the container image"),
    Argument("sagemaker_session", "Any", None, _N, "the engine makes its own boto3 client: engine_options={'region': ...}"),
    Argument("debugger_hook_config", "Any", None, _N, _RECORDED),
    Argument("rules", "Any", None, _N, _RECORDED),
    Argument("tensorboard_output_config", "Any", None, _N, "let the script write below SM_OUTPUT_DATA_DIR"),
    Argument("profiler_config", "Any", None, _N, _RECORDED),
    Argument("disable_profiler", "bool | None", None, _N, _RECORDED),
    Argument("enable_sagemaker_metrics", "bool | None", None, _S, "time series of metric_definitions in SageMaker's own store"),
    Argument("disable_output_compression", "bool", False, _S, "output without tar.gz"),
    Argument("enable_infra_check", "bool | None", None, _S, "the service's check of its machines"),
    Argument("enable_remote_debug", "bool | None", None, _S, "a shell into the container through SSM"),
    Argument("enable_session_tag_chaining", "bool | None", None, _S, "tags of the session for the role"),
    Argument("training_plan", "str | None", None, _S, "reserved capacity"),
    Argument("instance_placement_config", "Any", None, _S, "where UltraServer machines are placed"),
    Argument("training_repository_access_mode", "str | None", None, _S, "Platform or Vpc: where the image lies"),
    Argument("training_repository_credentials_provider_arn", "str | None", None, _S, "who opens that registry"),
    Argument("container_entry_point", "None", None, _R, _AGENT),
    Argument("container_arguments", "None", None, _R, _AGENT),
    Argument("algorithm_arn", "None", None, _R, "an algorithm of the marketplace is a closed container; paceline runs scripts"),
    Argument("distribution", "Mapping[str, Any] | None", None, _H, "how ranks are started; see docs/estimator.md", _FRAMEWORKS),
    Argument("framework_version", "str | None", None, _S,
             "chooses the image; elsewhere what is installed is used, and a difference is said", _FRAMEWORKS),
    Argument("py_version", "str | None", None, _S, "chooses the image", _FRAMEWORKS),
    Argument("compiler_config", "None", None, _R, "the Training Compiler was withdrawn; call torch.compile in the script", _FRAMEWORKS),
    Argument("training_recipe", "None", None, _R,
             "recipes are containers and scripts of HyperPod; name the script as entry_point", ("PyTorch",)),
    Argument("recipe_overrides", "None", None, _R, "belongs to training_recipe", ("PyTorch",)),
    Argument("model_dir", "str | Path | bool | None", None, _H, "passed to the script as --model_dir; False: not passed", ("TensorFlow",)),
    Argument("engine", "str | None", None, _H, "ours: local, ssh, ray, slurm or sagemaker, where instance_type does not say it"),
    Argument("engine_options", "Mapping[str, Any] | None", None, _H, "ours: what this engine alone understands, such as {'hosts': 'a,b'}"),
    Argument("processes_per_instance", "int | str | None", None, _H, "ours: ranks on each host, a number, 'gpu', 'cpu' or 'auto'"),
    Argument("planner", "Mapping[str, Any] | None", None, _H,
             "ours: {'trace': file, 'steps': N}; the planner's memory and time are checked too"),
    Argument("raise_on_timeout", "bool", True, _H, "ours: False lets fit() return after max_run, as v2 does"),
)
# fmt: on

# The positional parameters of each class, in v2's order; every other argument is keyword-only.
BY_POSITION: Mapping[str, tuple[str, ...]] = {
    "Estimator": ("image_uri", "role", "instance_count", "instance_type"),
    "PyTorch": (
        "entry_point",
        "framework_version",
        "py_version",
        "source_dir",
        "hyperparameters",
        "image_uri",
        "distribution",
    ),
    "TensorFlow": ("py_version", "framework_version", "model_dir", "image_uri", "distribution"),
}
# Names of SDK v1, which v2 still accepted with a warning.
V1_NAMES: Mapping[str, str] = {
    "train_instance_count": "instance_count",
    "train_instance_type": "instance_type",
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
    "train_use_spot_instances": "use_spot_instances",
    "train_volume_size": "volume_size",
    "train_volume_kms_key": "volume_kms_key",
    "image_name": "image_uri",
    "image": "image_uri",
    "distributions": "distribution",
    "metrics_definitions": "metric_definitions",
}
# Names of other classes of the SDK for the same thing.
_OTHER_NAMES: Mapping[str, str] = {"env": "environment"}
# Arguments of AWS's notebooks that v2 swallows: they have no effect there either.
_SWALLOWED: Mapping[str, str] = {
    "script_mode": "every job runs a script",
    "job_name": "fit(job_name=...) names the job",
}
# Values that ask for nothing: a debugger that is switched off needs no notice.
_ASKS_FOR_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "debugger_hook_config": (False,),
    "disable_profiler": (True, False),
    "rules": ([],),
    "enable_sagemaker_metrics": (False,),
}


def arguments_of(class_name: str) -> dict[str, Argument]:
    """The arguments of one class, by name."""
    return {row.name: row for row in ARGUMENTS if row.belongs_to(class_name)}


def accepted(class_name: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A value for every argument of the class, with v1's names replaced by v2's, and a notice for each replaced name.

    Raises:  UsageError U01: a name that is not in the table, or a name that is given twice; U32: a refused argument
    """
    rows = arguments_of(class_name)
    values = {name: row.default for name, row in rows.items()}
    notices = []
    for name, value in given.items():
        today = V1_NAMES.get(name) or _OTHER_NAMES.get(name, name)
        if today != name:
            whose = "the name of SDK v1" if name in V1_NAMES else "another class's name"
            notices.append(f"{name} is {whose}; taken as {today}")
            if given.get(today) is not None:
                raise UsageError(
                    "U01", f"{name} and {today} are one argument", saw=f"{name} and {today}", next=f"leave {name} out"
                )
        if name in _SWALLOWED:
            notices.append(f"{name}={shown(value)} has no effect, as in SDK v2: {_SWALLOWED[name]}")
            continue
        if today not in rows:
            raise unknown_name(class_name, name, rows)
        row = rows[today]
        if row.treatment is Treatment.REFUSED and value is not None:
            raise UsageError(
                "U32",
                f"{class_name}({today}=...) cannot be done here: {row.why}",
                saw=shown(value),
                next=f"leave {today} out",
            )
        values[today] = value
    return values, notices


def unknown_name(class_name: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that no argument has; it suggests the nearest spelling."""
    if name == "distribution":
        return UsageError(
            "U01",
            "Estimator takes no distribution: SDK v2 accepted and ignored it, so every host trained alone",
            saw="Estimator(distribution=...)",
            next="from paceline.estimator import PyTorch",
        )
    near = V1_NAMES.get(name) or nearest(name, known)
    return UsageError(
        "U01",
        f"{class_name} has no argument {name!r}",
        saw=f"the nearest one is {near}" if near else "no argument has such a name",
        next=f"write {near}=..."
        if near
        else f"leave {name} out; help(paceline.estimator.{class_name}) lists the arguments",
    )


def without_meaning(class_name: str, values: Mapping[str, Any], on_sagemaker: bool) -> tuple[str, ...]:
    """Names of the arguments that were set and have no effect on this engine."""
    idle = (Treatment.NOTICE,) if on_sagemaker else (Treatment.NOTICE, Treatment.SAGEMAKER)
    return tuple(
        name
        for name, row in arguments_of(class_name).items()
        if row.treatment in idle and asks(name, values.get(name), row.default)
    )


def asks(name: str, value: Any, default: Any) -> bool:
    """Whether the value asks for something that the default would not do."""
    if value is None or value == default:
        return False
    return not any(value is nothing or value == nothing for nothing in _ASKS_FOR_NOTHING.get(name, ()))


def shown(value: object) -> str:
    """A value in the form for an error message: short, on one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
