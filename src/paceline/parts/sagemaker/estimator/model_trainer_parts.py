"""The parts of a ModelTrainer, with the fields and defaults of the SageMaker SDK's v3. An unknown field is refused, as in v3."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator.arguments import shown
from paceline.spelling import nearest

DEFAULT_RUN_SECONDS = 3600
_Part = TypeVar("_Part")


def strict(kind: type[_Part]) -> type[_Part]:
    """Make the dataclass refuse a misspelt field, with the nearest spelling in the error.

    Raises:  UsageError U01: when an instance is constructed
    """
    plain = kind.__init__
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]

    @functools.wraps(plain)
    def checked(self: _Part, *positional: Any, **given: Any) -> None:
        if positional:
            raise UsageError(
                "U01",
                f"{kind.__name__} takes its fields by name",
                saw=shown(positional[0]),
                next=f"{kind.__name__}({known[0]}=...)",
            )
        refuse_unknown(kind.__name__, given, known)
        plain(self, **given)

    kind.__init__ = checked  # type: ignore[assignment]
    return kind


def refuse_unknown(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises:  UsageError U01: an unknown name; the error has the nearest known name."""
    known = list(known)
    for name in given:
        if name not in known:
            near = nearest(name, known)
            if owner == "ModelTrainer" and name == "distribution":
                near = "distributed"
            saw = f"the nearest one is {near}" if near else f"fields are {', '.join(known)}"
            raise UsageError(
                "U01",
                f"{owner} has no field {name!r}",
                saw=saw,
                next=f"write {near}=..." if near else f"leave {name} out",
            )


@strict
@dataclass(slots=True, kw_only=True)
class SourceCode:
    """The code of the job."""

    source_dir: str | None = None
    """The directory that is shipped to the hosts."""
    requirements: str | None = None
    """None, "auto" or "requirements.txt". With a text, that file of source_dir is installed on every host."""
    entry_script: str | None = None
    """The script that every rank runs: a .py or .sh file, relative to source_dir."""
    command: str | None = None
    """What a shell runs once on every host, in source_dir, in place of entry_script."""
    args: list[str] | str | None = None
    """The script's arguments: a list, or one text that is split as a shell splits it."""
    ignore_patterns: list[str] = field(default_factory=list)
    """Names and glob patterns of files that are not shipped."""


@strict
@dataclass(slots=True, kw_only=True)
class Compute:
    """The hosts of the job."""

    instance_type: str | None = "ml.m5.xlarge"
    """An ml. type, or "local" or "local_gpu" for this machine."""
    instance_count: int | None = 1
    """Number of hosts."""
    volume_size_in_gb: int | None = 30
    """Scratch disk in GB."""
    keep_alive_period_in_seconds: int | None = None
    """Seconds of a warm pool: the machines are kept for the next job."""
    instance_groups: list[Any] | None = None
    """The groups of a heterogeneous cluster, instead of type and count."""
    training_plan_arn: str | None = None
    """Reserved capacity."""
    instance_placement_config: Any = None
    """Where UltraServer machines are placed."""
    volume_kms_key_id: str | None = None
    """Key of the scratch disk."""
    enable_managed_spot_training: bool | None = None
    """Use spare capacity: the job is interrupted and started again from its checkpoints."""


@strict
@dataclass(slots=True, kw_only=True)
class Torchrun:
    """Ranks start as torchrun starts them."""

    process_count_per_node: int | None = None
    """Ranks on each host; None: one per GPU."""
    smp: Any = None
    """Refused: the library for model parallelism is closed."""


@strict
@dataclass(slots=True, kw_only=True)
class MPI:
    """Ranks start for a script that uses MPI."""

    process_count_per_node: int | None = None
    """Ranks on each host; None: one per GPU."""
    mpi_additional_options: list[str] | None = None
    """`-x NAME=VALUE` works. A notice names all other options."""


@strict
@dataclass(slots=True, kw_only=True)
class InputData:
    """One channel."""

    channel_name: str
    """The channel's name. The script gets the channel's directory in SM_CHANNEL_<name>."""
    data_source: Any
    """An address, a directory, a TrainingInput or a FileSystemInput."""
    content_type: str | None = None
    """Content type of the data."""


@strict
@dataclass(slots=True, kw_only=True)
class StoppingCondition:
    """Time limits. v3 stops a job after one hour by default, and v2 after one day."""

    max_runtime_in_seconds: int | None = DEFAULT_RUN_SECONDS
    """Seconds from the start of training. Then every rank gets SIGTERM, and SIGKILL after 120 s."""
    max_wait_time_in_seconds: int | None = None
    """For spot: seconds in total, including the waiting time."""
    max_pending_time_in_seconds: int | None = None
    """Seconds that the job may wait for machines. Only SageMaker reads this field."""


@strict
@dataclass(slots=True, kw_only=True)
class OutputDataConfig:
    """The location of model.tar.gz and output.tar.gz."""

    s3_output_path: str | None = None
    """A directory or a URL."""
    kms_key_id: str | None = None
    """Key of the output."""
    compression_type: str | None = None
    """With "NONE", the output is not packed as tar.gz."""


@strict
@dataclass(slots=True, kw_only=True)
class CheckpointConfig:
    """The location that is kept in sync with the checkpoints directory."""

    s3_uri: str | None = None
    """A directory or a URL."""
    local_path: str | None = None
    """A checkpoints directory instead of /opt/ml/checkpoints. Only SageMaker accepts another one."""


@strict
@dataclass(slots=True, kw_only=True)
class Networking:
    """The VPC of a job on SageMaker."""

    security_group_ids: list[str] | None = None
    """Must be given together with subnets."""
    subnets: list[str] | None = None
    """Must be given together with security_group_ids."""
    enable_network_isolation: bool | None = None
    """Run containers without a network of their own."""
    enable_inter_container_traffic_encryption: bool | None = None
    """Encrypt the traffic between hosts; this slows all_reduce down."""


def of_kind(name: str, value: object, kind: type[_Part]) -> _Part:
    """The value itself if it is of this kind; None gives the defaults of the kind.

    Raises:  UsageError U01: a value of another kind
    """
    if value is None:
        return kind()
    if not isinstance(value, kind):
        saw = f"{type(value).__name__}, not paceline.estimator.{kind.__name__}"
        raise UsageError("U01", f"{name} is a {kind.__name__}", saw=saw, next=f"{name}={kind.__name__}(...)")
    return value


def read_attribute(value: object, *names: str) -> Any:
    """The first of these names that an object or a dict has. v3's shapes are objects; its requests are dicts."""
    for name in names:
        if isinstance(value, Mapping) and name in value:
            return value[name]
        if hasattr(value, name):
            return getattr(value, name)
    return None
