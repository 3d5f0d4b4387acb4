"""Finds which machines a job asks for, and which engine provides them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.catalog.lookup import find_machine_type, machine_types
from paceline.catalog.names import nearest_types
from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator.arguments import shown
from paceline.parts.sagemaker.estimator.distribution import Distribution
from paceline.parts.sagemaker.estimator.limits import is_count
from paceline.probes.gpus import count_visible
from paceline.spelling import nearest

LOCAL, LOCAL_GPU = "local", "local_gpu"
ENGINE_VARIABLE = "PACELINE_ENGINE"
MOST_GROUPS = 5
_LOCAL_SPELLINGS = {"local-gpu": LOCAL_GPU, "localgpu": LOCAL_GPU, "local_cpu": LOCAL, "cpu": LOCAL, "gpu": LOCAL_GPU}


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """One group of a heterogeneous cluster. Arguments may be positional, as in SDK v2."""

    instance_group_name: str
    """The name that distribution and inputs use for the group."""
    instance_type: str
    """An ml. type."""
    instance_count: int
    """Number of hosts of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMachines:
    """The hosts of a job."""

    engine: str
    """The engine that provides the hosts."""
    hosts: int
    """Number of hosts."""
    instance_type: str | None
    """The machine type; None: the engine or the instance groups define it."""
    gpus_per_host: int | None
    """GPUs per host; None: unknown here, because the agent on the host counts them."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The engine's own options."""
    groups: tuple[InstanceGroup, ...] = ()
    """The groups of a heterogeneous cluster; () means one kind of machine."""

    @property
    def on_sagemaker(self) -> bool:
        return self.engine == "sagemaker"


def on_engine_of(environ: Mapping[str, str], values: dict[str, Any]) -> tuple[str, ...]:
    """Put the engine of PACELINE_ENGINE into arguments that name none, and return the notices about it.

    With `local`, an ml. type is this machine: local_gpu if a GPU is visible here, else local.
    """
    engine = environ.get(ENGINE_VARIABLE)
    if not engine or values.get("engine") is not None:
        return ()
    kind = values.get("instance_type")
    if kind in (LOCAL, LOCAL_GPU):
        return ()
    values["engine"] = engine
    if engine != LOCAL or not isinstance(kind, str) or not kind.startswith("ml."):
        return (f"{ENGINE_VARIABLE}={engine} says where the job runs",)
    values["instance_type"] = LOCAL_GPU if count_visible(environ)[0] else LOCAL
    return (f"{ENGINE_VARIABLE}={engine}: this machine stands in for {kind}",)


def machines_of(values: Mapping[str, Any], engines: Sequence[str]) -> RequestedMachines:
    """The machines that a job's arguments ask for.

    Raises:  UsageError U31: counts, types or groups that contradict each other; E01: an engine that does not exist
    """
    engine, options = values.get("engine"), _options(values.get("engine_options"))
    kind, count = values.get("instance_type"), values.get("instance_count")
    if engine is not None and engine not in engines:
        near = nearest(str(engine), engines)
        saw = f"the nearest one is {near}" if near else "engines are " + ", ".join(engines)
        raise UsageError("E01", f"there is no engine {engine!r}", saw=saw, next=f"engine={(near or 'local')!r}")
    groups = _groups(values.get("instance_groups"), kind, count)
    if groups:
        if engine not in (None, "sagemaker"):
            saw = f"instance_groups and engine={engine!r}"
            raise UsageError(
                "U31", "instance_groups are SageMaker's alone", saw=saw, next="instance_count=..., instance_type=..."
            )
        total = sum(group.instance_count for group in groups)
        return RequestedMachines(
            engine="sagemaker", hosts=total, instance_type=None, gpus_per_host=None, options=options, groups=groups
        )
    if count is None and engine == "ssh" and options.get("hosts"):
        count = len([host for host in options["hosts"].split(",") if host])
    if not is_count(count):
        saw = "no instance_count" if count is None else shown(count)
        raise UsageError("U31", "instance_count is a number of hosts, 1 or more", saw=saw, next="instance_count=1")
    kind = _checked_type(kind, engine)
    chosen = engine or ("local" if kind in (LOCAL, LOCAL_GPU) else "sagemaker")
    if chosen == "sagemaker" and (kind is None or kind in (LOCAL, LOCAL_GPU)):
        raise UsageError(
            "U31", "SageMaker needs an ml. instance type", saw=shown(kind), next="instance_type='ml.g5.12xlarge'"
        )
    return RequestedMachines(engine=chosen, hosts=count, instance_type=kind, gpus_per_host=_gpus(kind), options=options)


def check_groups(machines: RequestedMachines, distribution: Distribution) -> None:
    """Raises:  UsageError U31: the distribution names a group that the job does not have."""
    known = [group.instance_group_name for group in machines.groups]
    for name in distribution.groups:
        if name not in known:
            saw = f"groups of the job: {', '.join(known)}" if known else "the job has no instance_groups"
            raise UsageError(
                "U31",
                f"distribution names instance group {name!r}, which the job does not have",
                saw=saw,
                next=f"instance_groups=[InstanceGroup({name!r}, ...)]",
            )


def ranks_per_host(machines: RequestedMachines, distribution: Distribution, wanted: object) -> str:
    """Ranks per host in the form of --nproc-per-node: the user's value, else one per GPU if the distribution asks for it, else 1.

    Raises:  UsageError U31: neither a number nor an allowed word, or a number other than processes_per_host
    """
    if wanted is not None:
        if not (is_count(wanted) or wanted in ("gpu", "cpu", "auto")):
            saw = f"{shown(wanted)}; a number, 'gpu', 'cpu' or 'auto'"
            raise UsageError(
                "U31", "processes_per_instance is a number of ranks", saw=saw, next="processes_per_instance=8"
            )
        if (
            distribution.strategy == "mpi"
            and "sagemaker_mpi_num_of_processes_per_host" in distribution.parameters
            and wanted != distribution.per_host
        ):
            saw = f"processes_per_host={distribution.per_host}, processes_per_instance={wanted}"
            raise UsageError("U31", "two numbers of ranks per host", saw=saw, next="leave processes_per_instance out")
        return str(wanted)
    if distribution.per_host is not None:
        return str(distribution.per_host)
    if not distribution.every_gpu:
        return "1"
    if (machines.instance_type or "").removeprefix("ml.").startswith(("trn", "inf")):
        raise UsageError(
            "U31",
            "ranks on Trainium are not counted here",
            saw=str(machines.instance_type),
            next="processes_per_instance=32",
        )
    if machines.gpus_per_host is None:
        return "gpu"
    return str(machines.gpus_per_host or 1)


def _checked_type(kind: object, engine: object) -> str | None:
    if kind is None and engine is not None:
        return None
    if not isinstance(kind, str) or not kind:
        saw = "no instance_type" if kind is None else shown(kind)
        raise UsageError("U31", "instance_type says where the job runs", saw=saw, next="instance_type='local'")
    if kind in (LOCAL, LOCAL_GPU):
        return kind
    if known := _LOCAL_SPELLINGS.get(kind.lower()):
        raise UsageError(
            "U31", f"there is no instance type {kind!r}", saw=f"did you mean {known}?", next=f"instance_type={known!r}"
        )
    found = find_machine_type(kind)
    if engine is None and not kind.startswith("ml."):
        near = f"ml.{found.name}" if found else nearest(kind, (LOCAL, LOCAL_GPU)) or "local"
        saw = "SageMaker's types begin with ml.; other machines need engine="
        raise UsageError("U31", f"instance_type {kind!r} is no place to run", saw=saw, next=f"instance_type={near!r}")
    if found is None and engine in (None, "sagemaker"):
        alike = nearest_types(kind, [machine.name for machine in machine_types()])
        saw = (
            f"the nearest are {', '.join(f'ml.{name}' for name in alike)}"
            if alike
            else "no type of the catalogue is near"
        )
        raise UsageError("U31", f"there is no instance type {kind!r}", saw=saw, next="paceline plan --instances")
    if found is not None and engine in (None, "sagemaker") and found.sagemaker_training is False:
        raise UsageError(
            "U31",
            f"SageMaker does not train on {kind}",
            saw=found.note or "not among its training types",
            next="paceline plan --instances",
        )
    return kind


def _gpus(kind: str | None) -> int | None:
    if kind == LOCAL:
        return 0
    found = find_machine_type(kind) if kind and kind != LOCAL_GPU else None
    if found is None:
        return None
    return found.accelerator_count if found.accelerator is not None else 0


def _groups(value: object, kind: object, count: object) -> tuple[InstanceGroup, ...]:
    if value is None:
        return ()
    if kind is not None or count is not None:
        saw = f"instance_groups, instance_type={shown(kind)}, instance_count={shown(count)}"
        raise UsageError(
            "U31",
            "instance_groups stand in place of instance_type and instance_count",
            saw=saw,
            next="leave those two out",
        )
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MOST_GROUPS:
        raise UsageError(
            "U31",
            f"instance_groups is a list of 1 to {MOST_GROUPS} groups",
            saw=shown(value),
            next="instance_groups=[InstanceGroup(...)]",
        )
    groups = tuple(_group(one) for one in value)
    names = [group.instance_group_name for group in groups]
    if len(set(names)) != len(names):
        raise UsageError(
            "U31", "two instance groups have one name", saw=", ".join(names), next="give each group a name of its own"
        )
    return groups


def _group(value: object) -> InstanceGroup:
    name, kind, count = (
        getattr(value, part, None) for part in ("instance_group_name", "instance_type", "instance_count")
    )
    if not (isinstance(name, str) and name and isinstance(kind, str) and kind.startswith("ml.") and is_count(count)):
        raise UsageError(
            "U31",
            "an instance group has a name, an ml. type and a count",
            saw=shown(value),
            next="InstanceGroup(instance_group_name='workers', instance_type='ml.p4d.24xlarge', instance_count=2)",
        )
    _checked_type(kind, None)
    return InstanceGroup(instance_group_name=name, instance_type=kind, instance_count=count)


def _options(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise UsageError(
            "E01", "engine_options is a dict", saw=type(value).__name__, next="engine_options={'hosts': 'a,b'}"
        )
    return {name: str(one) for name, one in value.items()}
