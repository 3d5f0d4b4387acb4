"""Reads `distribution=` of SDK v2 strictly: which ranks start, what SM_FRAMEWORK_PARAMS says, and what is refused."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator.arguments import shown
from paceline.parts.sagemaker.estimator.limits import is_count
from paceline.spelling import nearest

# If several are enabled, the first in this order is used, as in SageMaker's PyTorch image.
PRECEDENCE = ("mpi", "pytorchddp", "torch_distributed", "smdistributed")
_TENSORFLOW = ("multi_worker_mirrored_strategy", "parameter_server")
_GONE = {
    "pytorchxla": "it belonged to the Training Compiler, which was withdrawn",
    "modelparallel": "the library for model parallelism is closed; FSDP of torch runs with torch_distributed",
}
_KEYS: Mapping[str, tuple[str, ...]] = {
    "smdistributed": ("dataparallel", "modelparallel"),
    "dataparallel": ("enabled", "custom_mpi_options"),
    "pytorchddp": ("enabled", "custom_mpi_options"),
    "torch_distributed": ("enabled",),
    "mpi": ("enabled", "processes_per_host", "custom_mpi_options"),
    "parameter_server": ("enabled",),
    "multi_worker_mirrored_strategy": ("enabled",),
    "pytorchxla": ("enabled",),
}
_TOP = (*PRECEDENCE, *_TENSORFLOW, "pytorchxla", "instance_groups")
_EXAMPLE = "distribution={'torch_distributed': {'enabled': True}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The content of a valid `distribution=`."""

    strategy: str = "plain"
    """Name of the strategy that is used; "plain": none is enabled."""
    every_gpu: bool = False
    """One rank for each GPU of a host."""
    per_host: int | None = None
    """Ranks on each host; None: `distribution=` gives no number."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Reserved hyperparameters that tell libraries the choice."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that custom_mpi_options set."""
    groups: tuple[str, ...] = ()
    """The instance groups that the strategy is limited to; empty means all."""
    notices: tuple[str, ...] = ()
    """Notices for the user, each shown once."""


def read_distribution(value: object, *, class_name: str, instance_type: str | None = None) -> Distribution:
    """Choose the one strategy that is used, by the precedence of SageMaker's images.

    Raises:  UsageError U31: an unknown key, a value of the wrong type, two strategies that exclude each other; U32: a strategy that this
             class or this machine type cannot run
    """
    if not value:
        return Distribution()
    forms = _dict("distribution", value, _TOP)
    groups = _groups(forms)
    enabled = _enabled(forms)
    _refuse_pairs(enabled)
    _refuse_for_class(enabled, class_name)
    if not enabled:
        if groups:
            raise _wrong(
                "distribution names instance_groups while no strategy is enabled", shown(dict(forms)), _EXAMPLE
            )
        return Distribution()
    strategy = next(name for name in (*PRECEDENCE, *_TENSORFLOW) if name in enabled)
    _refuse_for_machine(strategy, instance_type)
    chosen = _chosen(strategy, forms, instance_type)
    others = [name for name in enabled if name != strategy]
    notices = [*chosen.notices, *([f"distribution: {strategy} wins over {' and '.join(others)}"] if others else [])]
    parameters = {**chosen.parameters, **({"sagemaker_distribution_instance_groups": list(groups)} if groups else {})}
    return Distribution(
        strategy=strategy,
        every_gpu=strategy in ("torch_distributed", "smdistributed", "pytorchddp"),
        per_host=chosen.per_host,
        parameters=parameters,
        environment=chosen.environment,
        groups=groups,
        notices=tuple(notices),
    )


def _chosen(strategy: str, forms: Mapping[str, Any], instance_type: str | None) -> Distribution:
    machine = {"sagemaker_instance_type": instance_type} if instance_type else {}
    if strategy == "mpi":
        return _mpi(forms["mpi"])
    if strategy == "torch_distributed":
        return Distribution(parameters={"sagemaker_torch_distributed_enabled": True, **machine})
    if strategy == "smdistributed":
        options = forms["smdistributed"]["dataparallel"].get("custom_mpi_options", "")
        environment, notices = _mpi_options(options)
        said = {"sagemaker_distributed_dataparallel_custom_mpi_options": options}
        return Distribution(
            parameters={"sagemaker_distributed_dataparallel_enabled": True, **said, **machine},
            environment=environment,
            notices=notices,
        )
    if strategy == "pytorchddp":
        environment, notices = _mpi_options(forms["pytorchddp"].get("custom_mpi_options", ""))
        became = "pytorchddp: SDK 2.222 made smdistributed.dataparallel of it; here it is plain DDP, started as torchrun does"
        return Distribution(
            parameters={"sagemaker_pytorch_ddp_enabled": True, **machine},
            environment=environment,
            notices=(became, *notices),
        )
    return Distribution(parameters={f"sagemaker_{strategy}_enabled": True})


def _mpi(form: Mapping[str, Any]) -> Distribution:
    count = form.get("processes_per_host")
    if count is not None and not is_count(count):
        raise _wrong(
            "distribution: processes_per_host is a number of ranks",
            shown(count),
            "{'mpi': {'enabled': True, 'processes_per_host': 8}}",
        )
    options = form.get("custom_mpi_options", "")
    environment, notices = _mpi_options(options)
    parameters: dict[str, Any] = {"sagemaker_mpi_enabled": True}
    if count is not None:
        parameters["sagemaker_mpi_num_of_processes_per_host"] = count
    parameters["sagemaker_mpi_custom_mpi_options"] = options
    said = "distribution: mpi starts the ranks without mpirun; torch.distributed finds them, mpi4py and Horovod find no world"
    return Distribution(per_host=count or 1, parameters=parameters, environment=environment, notices=(said, *notices))


def _mpi_options(text: object) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables that `-x NAME=VALUE` and `--NCCL_DEBUG LEVEL` set, and a notice with the options that only mpirun understands."""
    if not isinstance(text, str):
        raise _wrong(
            "distribution: custom_mpi_options is one text", shown(text), "custom_mpi_options='-x NCCL_DEBUG=INFO'"
        )
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise _wrong(
            "distribution: custom_mpi_options cannot be read", f"{text}: {error}", "close the quote"
        ) from error
    environment: dict[str, str] = {}
    left = []
    while argv:
        word = argv.pop(0)
        if word == "-x" and argv:
            name, equals, value = argv.pop(0).partition("=")
            if equals:
                environment[name] = value
        elif word.lstrip("-") == "NCCL_DEBUG" and argv:
            environment["NCCL_DEBUG"] = argv.pop(0)
        else:
            left.append(word)
    return environment, (f"distribution: without mpirun these mean nothing: {shlex.join(left)}",) if left else ()


def _enabled(forms: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    for name, form in forms.items():
        if name == "instance_groups":
            continue
        if name == "smdistributed":
            inner = _dict("distribution['smdistributed']", form, _KEYS["smdistributed"])
            if len(inner) != 1:
                saw = ", ".join(inner) or "none"
                raise _wrong(
                    "distribution: smdistributed takes exactly one strategy",
                    saw,
                    "{'smdistributed': {'dataparallel': {'enabled': True}}}",
                )
            if "modelparallel" in inner:
                raise UsageError(
                    "U32",
                    f"smdistributed.modelparallel cannot run here: {_GONE['modelparallel']}",
                    saw=shown(form),
                    next=_EXAMPLE,
                )
            form, name_of_keys = inner["dataparallel"], "dataparallel"
        else:
            name_of_keys = name
        settings = _dict(f"distribution[{name!r}]", form, _KEYS[name_of_keys])
        on = settings.get("enabled", False)
        if not isinstance(on, bool):
            raise _wrong(
                f"distribution[{name!r}]: enabled is True or False", shown(on), f"{{{name!r}: {{'enabled': True}}}}"
            )
        if on:
            found.append(name)
    return tuple(found)


def _refuse_pairs(enabled: Sequence[str]) -> None:
    for one, other in (
        ("pytorchddp", "smdistributed"),
        ("multi_worker_mirrored_strategy", "smdistributed"),
        ("multi_worker_mirrored_strategy", "parameter_server"),
    ):
        if one in enabled and other in enabled:
            raise _wrong(
                f"distribution: {one} and {other} exclude each other",
                f"both are enabled: {', '.join(enabled)}",
                f"leave {other} out",
            )


def _refuse_for_class(enabled: Sequence[str], class_name: str) -> None:
    if "pytorchxla" in enabled:
        raise UsageError("U32", f"pytorchxla cannot run: {_GONE['pytorchxla']}", saw="pytorchxla", next=_EXAMPLE)
    reasons = {
        "PyTorch": dict.fromkeys(_TENSORFLOW, "it is TensorFlow's"),
        "TensorFlow": {
            "torch_distributed": "it starts ranks of torch",
            "pytorchddp": "it starts ranks of torch",
            "mpi": "Horovod finds its world through mpirun alone, which paceline does not start",
        },
    }
    usual = {"PyTorch": _EXAMPLE, "TensorFlow": "distribution={'multi_worker_mirrored_strategy': {'enabled': True}}"}
    for name in enabled:
        if why := reasons.get(class_name, {}).get(name):
            raise UsageError(
                "U32", f"{class_name} cannot use {name}: {why}", saw=f"{name} enabled", next=usual[class_name]
            )


def _refuse_for_machine(strategy: str, instance_type: str | None) -> None:
    kind = (instance_type or "").removeprefix("ml.")
    if kind.startswith(("trn", "inf")) and strategy != "torch_distributed":
        raise UsageError(
            "U32", f"Trainium ({instance_type}) takes torch_distributed alone", saw=strategy, next=_EXAMPLE
        )


def _groups(forms: Mapping[str, Any]) -> tuple[str, ...]:
    value = forms.get("instance_groups")
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not value:
        raise _wrong(
            "distribution: instance_groups is a list with one group", shown(value), "'instance_groups': [group]"
        )
    names = tuple(str(getattr(group, "instance_group_name", group)) for group in value)
    if len(names) > 1:
        raise _wrong(
            "distribution: only one instance group can be named", ", ".join(names), f"'instance_groups': [{names[0]}]"
        )
    return names


def _dict(named: str, value: object, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(f"{named} is a dict", shown(value), _EXAMPLE)
    for key in value:
        if key not in known:
            near = nearest(str(key), known)
            saw = f"did you mean {near}?" if near else f"keys are {', '.join(known)}"
            raise _wrong(f"{named} has no key {key!r}", saw, f"write {near!r}" if near else _EXAMPLE)
    return value


def _wrong(what: str, saw: str, next: str) -> UsageError:
    return UsageError("U31", what, saw=saw, next=next)
