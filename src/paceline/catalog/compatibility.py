"""Whether a machine type is allowed for a kind of job, and why not, with hardware reasons in numbers."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from paceline.catalog.lookup import find_accelerator, machine_types
from paceline.catalog.smddp import TYPES as SMDDP_TYPES
from paceline.catalog.smddp import last_release, release
from paceline.catalog.types import PCIE_GB_PER_SECOND, TCP_FLOW_GBPS, TCP_FLOW_OUTSIDE_GBPS, Accelerator, MachineType
from paceline.spelling import plural

_NEAREST = 3
# Source: EC2 user guide, "Amazon EC2 instance network bandwidth", May 2023.
_BURST_MINUTES = (5, 60)


class JobKind(StrEnum):
    """Kinds of jobs that hardware decides about."""

    SAGEMAKER_TRAINING = "sagemaker-training"
    SMDDP = "smddp"
    DDP_GPU = "ddp-gpu"
    DDP_CPU = "ddp-cpu"
    MULTI_HOST = "multi-host"
    EFA = "efa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One fact of the hardware."""

    text: str
    """The fact."""
    forbids: bool | None
    """true: the job cannot run; false: it can, with a cost; None: not known."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Figures of the fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Whether a type suits one kind of job."""

    allowed: bool | None
    """Whether such a job can run there; None: not judged, and the reasons say what is missing."""
    reasons: tuple[Reason, ...] = ()
    """Facts of the hardware."""
    nearest: tuple[str, ...] = ()
    """Types that suit, the most similar first."""


def support(of: MachineType, kind: str, version: str | None = None, *, nearest: bool = True) -> Support:
    """Whether jobs of this kind can run on machines of this type.

    `version`: of the library, for `smddp`; None: of any version. `nearest` False spares the search over the catalogue.
    Holds:   allowed is False <=> a reason forbids; an own machine has no answer about SageMaker
    Raises:  ValueError: no such kind
    """
    chosen = JobKind(kind)
    reasons = tuple(_reasons(of, chosen, version))
    allowed = _allowed(reasons)
    wanted = nearest and (allowed is not True or any(reason.forbids is False for reason in reasons))
    return Support(allowed=allowed, reasons=reasons, nearest=_nearest(of, chosen, version) if wanted else ())


def _allowed(reasons: tuple[Reason, ...]) -> bool | None:
    if any(reason.forbids for reason in reasons):
        return False
    return None if any(reason.forbids is None for reason in reasons) else True


def _reasons(of: MachineType, kind: JobKind, version: str | None) -> Iterator[Reason]:
    if kind is JobKind.SMDDP:
        yield from _smddp(of, version)
    else:
        yield from _JUDGES[kind](of)


def _sagemaker(of: MachineType) -> Iterator[Reason]:
    if of.sagemaker_training is None:
        yield Reason(text="whether SageMaker training takes it is not in the catalogue", forbids=None)
    elif not of.sagemaker_training:
        count = sum(1 for one in machine_types() if one.sagemaker_training)
        yield Reason(
            text=f"CreateTrainingJob does not accept it: it is not one of its {count} types",
            forbids=True,
            numbers={"types_count": count},
        )


def _smddp(of: MachineType, version: str | None) -> Iterator[Reason]:
    """The library's own list first: on what it was built for, the rest are explanations."""
    known = SMDDP_TYPES.get(of.name)
    if known is None:
        yield Reason(text=f"SMDDP was never built for it: only for {', '.join(SMDDP_TYPES)}", forbids=True)
        yield from _smddp_hardware(of)
        return
    first, until = known
    if version is not None and release(version) > last_release():
        yield Reason(text=f"there is no SMDDP {version}: the last release is {_dotted(last_release())}", forbids=True)
    elif version is not None and (release(version) < release(first) or (until and release(version) >= release(until))):
        span = f"from {first} to before {until}" if until else f"from {first}"
        yield Reason(text=f"SMDDP {version} was not built for it: its versions are {span}", forbids=True)
    elif version is None and until:
        yield Reason(text=f"only SMDDP from {first} to before {until}; later ones refuse to load on it", forbids=False)
    if of.efa is False:
        text = f"no EFA: the exchange goes over TCP at {_number(of.network_gbps)} Gbit/s"
        yield Reason(text=text, forbids=False, numbers=_numbers(network_gbps=of.network_gbps))


def _smddp_hardware(of: MachineType) -> Iterator[Reason]:
    """What it lacks of that hardware: 8 GPUs joined by NVLink, EFA. None of it forbids more than the list does."""
    count, nvlink = of.accelerator_count, of.nvlink
    if count is None:
        yield Reason(text="how many GPUs it has is not known", forbids=None)
    elif count == 0:
        yield Reason(text="no GPU of its own", forbids=True, numbers={"gpu_count": 0})
    elif count != 8:
        text = f"{count} {plural(count, 'GPU')}: it wants 8, each with a server process beside it"
        yield Reason(text=text, forbids=True, numbers={"gpu_count": count})
    elif nvlink and of.efa:
        text = f"8 {of.accelerator} on {of.intra_link}, with EFA: only the library's own build for them is missing"
        yield Reason(text=text, forbids=True, numbers={"gpu_count": 8})
    if count and count > 1 and not nvlink:
        yield Reason(
            text=_no_nvlink(of),
            forbids=None if nvlink is None else True,
            numbers=_numbers(gpu_count=count, **_pcie(of)),
        )
    if of.efa is False:
        yield Reason(text=_no_efa(of), forbids=True, numbers=_numbers(network_gbps=of.network_gbps))
    yield from _burst(of, forbids=True)


def _ddp_gpu(of: MachineType) -> Iterator[Reason]:
    if of.accelerator is None and of.accelerator_count is None:
        yield Reason(text="whether it has a GPU is not known", forbids=None)
        return
    if of.accelerator is None and of.accelerator_count == 0:
        text = f"no GPU: {of.vcpu_count} vCPUs" if of.vcpu_count else "no GPU"
        yield Reason(text=text, forbids=True, numbers=_numbers(gpu_count=0, vcpu_count=of.vcpu_count))
        return
    name = of.accelerator or "its accelerator"
    found = find_accelerator(name)
    maker = found.name if found is not None else name
    if not maker.startswith("NVIDIA"):
        if maker.startswith("AMD"):
            yield Reason(text=f"{name}: whether torch's ROCm build drives it is not in the catalogue", forbids=None)
        elif found is None:
            yield Reason(text=f"{name}: whether torch drives it is not in the catalogue", forbids=None)
        else:
            yield Reason(
                text=f"{name} is not a GPU: torch supports it only through the vendor's own build", forbids=True
            )
        return
    if of.accelerator_count is None:
        yield Reason(text=_unknown_count(of), forbids=None)
    elif of.accelerator_count == 0:
        gib = of.accelerator_memory_gib
        text = f"{_number(gib)} GiB of one {name}: a fraction of a GPU that other machines use too"
        yield Reason(text=text, forbids=True, numbers=_numbers(gpu_memory_gib=gib))
    elif of.accelerator_count > 1 and not of.nvlink:
        yield Reason(text=_no_nvlink(of), forbids=False, numbers=_numbers(gpu_count=of.accelerator_count, **_pcie(of)))


def _ddp_cpu(of: MachineType) -> Iterator[Reason]:
    if of.vcpu_count is None:
        yield Reason(text="how many CPUs it has is not in the catalogue", forbids=None)
        return
    if of.accelerator is not None:
        count = of.accelerator_count
        text = f"its {count or ''} {of.accelerator} would be idle".replace("  ", " ")
        yield Reason(text=text, forbids=False, numbers=_numbers(accelerator_count=count))
    if of.name.startswith("t3."):
        yield Reason(text="its CPUs run on credits: a short test is faster than a long job", forbids=False)


def _multi_host(of: MachineType) -> Iterator[Reason]:
    if of.network_gbps is None:
        text = "the sustained rate of its network is not in the catalogue"
        if of.network_burst_gbps is not None:
            text += f"; it reaches at most {_number(of.network_burst_gbps)} Gbit/s"
        yield Reason(text=text, forbids=None, numbers=_numbers(burst_gbps=of.network_burst_gbps))
        return
    yield from _burst(of, forbids=False)
    if of.efa is False:
        yield Reason(text=_no_efa(of), forbids=False, numbers=_numbers(flow_gbps=TCP_FLOW_OUTSIDE_GBPS))
    if of.accelerator_count and of.accelerator_count > 1:
        each = of.network_gbps / of.accelerator_count
        if each < 10:
            text = f"{of.accelerator_count} accelerators share {_number(of.network_gbps)} Gbit/s: {each:.3g} for each"
            yield Reason(
                text=text, forbids=False, numbers={"gbps_each": each, "accelerator_count": of.accelerator_count}
            )


def _efa(of: MachineType) -> Iterator[Reason]:
    if of.efa is None:
        yield Reason(text="whether it has EFA is not in the catalogue", forbids=None)
    elif not of.efa:
        yield Reason(text=_no_efa(of), forbids=True, numbers=_numbers(network_gbps=of.network_gbps))


_JUDGES: Mapping[JobKind, Callable[[MachineType], Iterator[Reason]]] = {
    JobKind.SAGEMAKER_TRAINING: _sagemaker,
    JobKind.DDP_GPU: _ddp_gpu,
    JobKind.DDP_CPU: _ddp_cpu,
    JobKind.MULTI_HOST: _multi_host,
    JobKind.EFA: _efa,
}


def _burst(of: MachineType, *, forbids: bool) -> Iterator[Reason]:
    stays, burst = of.network_gbps, of.network_burst_gbps
    if stays is not None and burst is not None and burst > stays:
        text = (
            f"{_number(burst)} Gbit/s is a burst that ends after {_BURST_MINUTES[0]} to {_BURST_MINUTES[1]} minutes; "
            f"the sustained rate is {_number(stays)} Gbit/s"
        )
        yield Reason(text=text, forbids=forbids, numbers={"burst_gbps": burst, "network_gbps": stays})


def _no_nvlink(of: MachineType) -> str:
    devices = f"{of.accelerator_count} {of.accelerator}"
    if not of.intra_link:
        return f"the link between its {devices} is not known"
    rate = _pcie(of).get("pcie_gb_per_second")
    way = f"PCIe Gen{of.intra_link[-1]} ({rate:.3g} GB/s one way at most)" if rate else of.intra_link
    return f"no NVLink: {devices} exchange over {way.replace('pcie', 'PCIe')}"


def _unknown_count(of: MachineType) -> str:
    return f"how many {of.accelerator} it has is not in the catalogue"


def _no_efa(of: MachineType) -> str:
    rate = of.network_gbps
    told = "no EFA: TCP" if rate is None else f"no EFA: TCP at {rate:g} Gbit/s"
    if rate is not None and rate <= TCP_FLOW_OUTSIDE_GBPS:
        return told
    return f"{told}, one connection {TCP_FLOW_OUTSIDE_GBPS} Gbit/s, {TCP_FLOW_GBPS} in a cluster placement group"


def _pcie(of: MachineType) -> dict[str, float]:
    link = of.intra_link or ""
    rate = PCIE_GB_PER_SECOND.get(int(link[4:])) if link.startswith("pcie") and link[4:].isdigit() else None
    return _numbers(pcie_gb_per_second=rate)


def _nearest(of: MachineType, kind: JobKind, version: str | None) -> tuple[str, ...]:
    several = kind is JobKind.DDP_GPU and (of.accelerator_count or 0) > 1
    fitting = [
        one for one in _fitting(kind, version) if one.name != of.name and not (several and one.accelerator_count == 1)
    ]
    return tuple(one.name for one in sorted(fitting, key=lambda one: _difference(of, one))[:_NEAREST])


@cache
def _fitting(kind: JobKind, version: str | None) -> tuple[MachineType, ...]:
    """Types without any such reason or, if there are none, types that are allowed."""
    judged = [(one, tuple(_reasons(one, kind, version))) for one in machine_types()]
    clean = tuple(one for one, reasons in judged if not reasons)
    return clean or tuple(one for one, reasons in judged if _allowed(reasons))


def _difference(of: MachineType, other: MachineType) -> tuple[float, ...]:
    """Sort key: usable in the same place, same accelerator, similar speed, same count, similar price."""
    both = of.accelerator is not None and other.accelerator is not None
    return (
        float(bool(of.sagemaker_training) and not other.sagemaker_training),
        float((of.accelerator is None) != (other.accelerator is None)),
        float(_is_gpu(of) and not _is_gpu(other)),
        float(of.accelerator != other.accelerator),
        _ratio(_speed(of), _speed(other)) if both else 0.0,
        _ratio(of.accelerator_count, other.accelerator_count) if both else 0.0,
        _ratio(of.usd_per_hour, other.usd_per_hour),
        _ratio(of.vcpu_count, other.vcpu_count),
    )


def _speed(of: MachineType) -> float | None:
    found: Accelerator | None = find_accelerator(of.accelerator) if of.accelerator else None
    return found.fp16_tflops or found.bf16_tflops or found.fp32_tflops if found is not None else None


def _is_gpu(of: MachineType) -> bool:
    found = find_accelerator(of.accelerator) if of.accelerator else None
    return found is not None and found.name.startswith(("NVIDIA", "AMD"))


def _ratio(one: float | None, other: float | None) -> float:
    """Distance of two figures in eighths of a doubling; an unknown figure is far."""
    if not one or not other:
        return 99.0
    return abs(round(8 * math.log2(one / other))) / 8


def _number(value: float | None) -> str:
    return "an unknown number of" if value is None else f"{value:g}"


def _numbers(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _dotted(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))
