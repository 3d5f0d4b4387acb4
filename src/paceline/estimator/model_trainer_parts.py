"""The parts of a ModelTrainer, with the fields and defaults of the SageMaker SDK's v3. A field that there is not is refused, as there."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from paceline.errors import UsageError
from paceline.estimator.arguments import shown
from paceline.estimator.exceptions import explained
from paceline.spelling import nearest

DEFAULT_RUN_SECONDS = 3600
_Part = TypeVar("_Part")


def strict(kind: type[_Part]) -> type[_Part]:
    """The dataclass, which refuses a misspelt field with the nearest spelling.

    Raises:  UsageError U53: on construction
    """
    plain = kind.__init__
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]

    @functools.wraps(plain)
    @explained
    def checked(self: _Part, *positional: Any, **given: Any) -> None:
        if positional:
            raise UsageError(
                "U53",
                f"{kind.__name__} takes its fields by name",
                saw=shown(positional[0]),
                next=f"{kind.__name__}({known[0]}=...)",
            )
        refuse_unknown(kind.__name__, given, known)
        plain(self, **given)

    kind.__init__ = checked  # type: ignore[assignment]
    return kind


def refuse_unknown(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises:  UsageError U53: a name that is not known, with the nearest one."""
    known = list(known)
    for name in given:
        if name not in known:
            near = nearest(name, known)
            if owner == "ModelTrainer" and name == "distribution":
                near = "distributed"
            saw = f"the nearest one is {near}" if near else f"fields are {', '.join(known)}"
            raise UsageError(
                "U53",
                f"{owner} has no field {name!r}",
                saw=saw,
                next=f"write {near}=..." if near else f"leave {name} out",
            )


@strict
@dataclass(slots=True, kw_only=True)
class SourceCode:
    """The code of the job."""

    source_dir: str | None = None
    """The directory that is shipped."""
    requirements: str | None = None
    """None, "auto" or "requirements.txt": that file of source_dir is installed on every host."""
    entry_script: str | None = None
    """The script that every rank runs: a .py or .sh file, relative to source_dir."""
    command: str | None = None
    """Refused: ranks start without a shell."""
    args: list[str] | str | None = None
    """Arguments of the script, as a list, or as one text that is split as a shell splits it."""
    ignore_patterns: list[str] = field(default_factory=list)
    """Names and glob patterns of files that are not shipped."""


@strict
@dataclass(slots=True, kw_only=True)
class Compute:
    """The hosts of the job."""

    instance_type: str | None = "ml.m5.xlarge"
    """An ml. type. "local" and "local_gpu" are this machine."""
    instance_count: int | None = 1
    """Number of hosts."""
    volume_size_in_gb: int | None = 30
    """Scratch disk in GB."""
    keep_alive_period_in_seconds: int | None = None
    """A warm pool: the machines are kept for the next job."""
    instance_groups: list[Any] | None = None
    """A heterogeneous cluster, in place of type and count."""
    training_plan_arn: str | None = None
    """Reserved capacity."""
    instance_placement_config: Any = None
    """Where UltraServer machines are placed."""
    volume_kms_key_id: str | None = None
    """Key of the scratch disk."""
    enable_managed_spot_training: bool | None = None
    """Spare capacity: the job is interrupted and started again from its checkpoints."""


@strict
@dataclass(slots=True, kw_only=True)
class Torchrun:
    """Ranks as torchrun starts them."""

    process_count_per_node: int | None = None
    """Ranks on each host; None: one for each GPU."""
    smp: Any = None
    """Refused: the library for model parallelism is closed."""


@strict
@dataclass(slots=True, kw_only=True)
class MPI:
    """Ranks of a script for MPI."""

    process_count_per_node: int | None = None
    """Ranks on each host; None: one for each GPU."""
    mpi_additional_options: list[str] | None = None
    """`-x NAME=VALUE` is honoured; the rest is named in a notice."""


@strict
@dataclass(slots=True, kw_only=True)
class InputData:
    """One channel."""

    channel_name: str
    """The channel's name, which the script sees as SM_CHANNEL_NAME."""
    data_source: Any
    """An address, a directory, a TrainingInput or a FileSystemInput."""
    content_type: str | None = None
    """Content type of the data."""


@strict
@dataclass(slots=True, kw_only=True)
class StoppingCondition:
    """Limits of time. v3 stops a job after an hour where v2 gave it a day."""

    max_runtime_in_seconds: int | None = DEFAULT_RUN_SECONDS
    """From the start of training; then SIGTERM to every rank, 120 s, SIGKILL."""
    max_wait_time_in_seconds: int | None = None
    """Spot: seconds in all, waiting included."""
    max_pending_time_in_seconds: int | None = None
    """Seconds that the job may wait for machines. SageMaker alone reads it."""


@strict
@dataclass(slots=True, kw_only=True)
class OutputDataConfig:
    """Where model.tar.gz and output.tar.gz go."""

    s3_output_path: str | None = None
    """A directory or a URL."""
    kms_key_id: str | None = None
    """Key of the output."""
    compression_type: str | None = None
    """With "NONE" the output has no tar.gz."""


@strict
@dataclass(slots=True, kw_only=True)
class CheckpointConfig:
    """What the checkpoints directory is kept in step with."""

    s3_uri: str | None = None
    """A directory or a URL."""
    local_path: str | None = None
    """Another checkpoints directory than /opt/ml/checkpoints. SageMaker alone takes one."""


@strict
@dataclass(slots=True, kw_only=True)
class Networking:
    """The VPC of a job on SageMaker."""

    security_group_ids: list[str] | None = None
    """Given together with subnets."""
    subnets: list[str] | None = None
    """Given together with security_group_ids."""
    enable_network_isolation: bool | None = None
    """Containers without a network of their own."""
    enable_inter_container_traffic_encryption: bool | None = None
    """Encrypts what hosts exchange; slows all_reduce down."""


def of_kind(name: str, value: object, kind: type[_Part]) -> _Part:
    """The part, where it is one; None gives the part's defaults.

    Raises:  UsageError U53: something else
    """
    if value is None:
        return kind()
    if not isinstance(value, kind):
        saw = f"{type(value).__name__}, not paceline.estimator.{kind.__name__}"
        raise UsageError("U53", f"{name} is a {kind.__name__}", saw=saw, next=f"{name}={kind.__name__}(...)")
    return value


def read_attribute(value: object, *names: str) -> Any:
    """The first of these names that an object or a dict has; v3's shapes are objects, its requests dicts."""
    for name in names:
        if isinstance(value, Mapping) and name in value:
            return value[name]
        if hasattr(value, name):
            return getattr(value, name)
    return None
