"""Machine types of the catalogue: a table of many, a page of one, each figure with its source. Unknown figures are shown too."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paceline.catalog.compatibility import Support
from paceline.catalog.lookup import SpotPrice
from paceline.catalog.types import Accelerator, MachineType, gpu_memory_gib
from paceline.views.table import table
from paceline.views.units import counted

UNKNOWN = "unknown"
NOT_JUDGED = "not judged"
_ANSWERS = ("yes", "yes, but", NOT_JUDGED, "no")
_LABEL = 24
_HEADERS = ("TYPE", "GPUS", "ACCELERATOR", "GiB", "LINK", "Gbit/s", "EFA", "$/h", "SAGEMAKER")
_COLUMNS = (
    "fp32_tflops",
    "tf32_tflops",
    "fp16_tflops",
    "bf16_tflops",
    "memory_gib",
    "memory_gb_per_second",
    "nvlink_gb_per_second",
    "pcie_generation",
)
_RIGHT = frozenset({"GPUS", "GiB", "Gbit/s", "$/h"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One machine type with everything that is known about it."""

    machine: MachineType
    """The type."""
    accelerator: Accelerator | None = None
    """Its accelerator."""
    spot: tuple[SpotPrice, ...] = ()
    """Spot prices by zone."""
    kinds: Mapping[str, Support] | None = None
    """Kind of job -> whether the type supports it."""


def instances_text(
    shown: Sequence[Described],
    *,
    width: int | None = 100,
    ascii_only: bool = False,
    left_out: str = "",
    folds: bool = False,
) -> str:
    """Many types, a line each; types that could not be judged are named below.

    `folds`: the types that allow the kind of job come first, and the types that do not are only counted.
    """
    headers = list(_HEADERS)
    kind = next(iter(shown[0].kinds or ()), None) if shown else None
    if kind is not None:
        headers[-1] = kind.upper()
    refused = 0
    if kind is not None and folds:
        judged = sorted(shown, key=lambda one: _ANSWERS.index(_answer(one, kind)))
        shown = [one for one in judged if _answer(one, kind) != "no"]
        refused = len(judged) - len(shown)
    rows = [_row(one, kind) for one in shown]
    lines = (
        [table(headers, rows, right=_RIGHT, width=width, ascii_only=ascii_only)]
        if rows
        else ["no type meets the conditions"]
    )
    if any(one.machine.network_burst_gbps for one in shown):
        lines.append("+: a higher rate for some minutes; the sustained rate is shown")
    if refused:
        lines.append(f"and {counted(refused, 'type')}: no (--json has them all, with the reasons)")
    return "\n".join([*lines, *([left_out] if left_out else [])])


def _answer(one: Described, kind: str) -> str:
    return answer((one.kinds or {})[kind])


def _row(one: Described, kind: str | None) -> tuple[str, ...]:
    of = one.machine
    last = _answer(one, kind) if kind is not None else yes(of.sagemaker_training)
    return (
        of.name,
        "-" if of.accelerator_count == 0 and of.accelerator is None else number(of.accelerator_count),
        (of.accelerator or "-").removeprefix("NVIDIA "),
        "-" if of.accelerator is None else number(gpu_memory_gib(one.machine, one.accelerator)),
        of.intra_link or "-",
        number(of.network_gbps) + ("+" if of.network_burst_gbps else ""),
        yes(of.efa),
        number(of.usd_per_hour),
        last,
    )


def instance_text(one: Described) -> str:
    """One type: each figure with its source, and the jobs that it suits or not, with reasons."""
    of = one.machine
    lines = [of.name, *(_line(label, text) for label, text in _figures(one))]
    if of.note:
        lines.append(_line("note", of.note))
    if one.accelerator is not None:
        lines += [_line(label, text) for label, text in _accelerator_figures(one.accelerator)]
    for kind, support in (one.kinds or {}).items():
        lines += _support_lines(kind, support)
    lines += ["", "sources"]
    lines += [
        _line(name or "all else", source) for name, source in sorted(of.sources.items(), key=lambda item: item[0] == "")
    ]
    if one.accelerator is not None:
        lines.append(_line("accelerator", one.accelerator.source))
    if one.spot:
        lines.append(_line("spot", one.spot[0].source))
    return "\n".join(lines)


def _figures(one: Described) -> list[tuple[str, str]]:
    of = one.machine
    figures = [
        ("CPU", f"{number(of.vcpu_count)} vCPUs, {number(of.memory_gib)} GiB"),
        ("accelerators", _accelerators(one)),
        ("network", _network(of)),
        ("EFA", yes(of.efa) + (f", {counted(of.efa_interface_count, 'interface')}" if of.efa_interface_count else "")),
        ("storage", _storage(of)),
        ("on demand", "unknown" if of.usd_per_hour is None else f"{of.usd_per_hour:.10g} USD an hour"),
        ("spot", _spot(one.spot)),
        ("SageMaker", _sagemaker(of)),
        ("SMDDP", UNKNOWN if of.smddp is None else of.smddp or "no: the library never supported it"),
    ]
    if of.accelerator is not None and (of.accelerator_count or 0) > 1:
        figures.insert(2, ("link inside", of.intra_link or UNKNOWN))
    return figures


def _accelerators(one: Described) -> str:
    of = one.machine
    if of.accelerator is None:
        if of.accelerator_count is None:
            return UNKNOWN
        return "none" if of.accelerator_count == 0 else f"{of.accelerator_count} of an {UNKNOWN} kind"
    gib = number(gpu_memory_gib(one.machine, one.accelerator))
    if of.accelerator_count == 0:
        return f"{gib} GiB of one {of.accelerator}"
    return f"{number(of.accelerator_count)} x {of.accelerator}, {gib} GiB each"


def _storage(of: MachineType) -> str:
    local = "local " + UNKNOWN if of.local_storage_gb is None else f"{of.local_storage_gb:g} GB local"
    return f"{local}; EBS " + (UNKNOWN if of.ebs_mbps is None else f"{of.ebs_mbps:g} Mbit/s")


def _network(of: MachineType) -> str:
    if of.network_gbps is None and of.network_burst_gbps is None:
        return UNKNOWN
    burst = f", {of.network_burst_gbps:g} for 5 to 60 minutes" if of.network_burst_gbps is not None else ""
    return f"{number(of.network_gbps)} Gbit/s{' sustained' if burst else ''}{burst}"


def _spot(prices: Sequence[SpotPrice]) -> str:
    if not prices:
        return UNKNOWN
    low, high = prices[0], prices[-1]
    return (
        f"{low.usd_per_hour:g} ({low.zone}) to {high.usd_per_hour:g} ({high.zone}) USD an hour, by zone, in a snapshot"
    )


def _sagemaker(of: MachineType) -> str:
    price = (
        f", {of.sagemaker_usd_per_hour:g} USD an hour in an old snapshot"
        if of.sagemaker_usd_per_hour is not None
        else ""
    )
    return f"{yes(of.sagemaker_training)}{' (ml.' + of.name + ')' if of.sagemaker_training else ''}{price}"


def _accelerator_figures(of: Accelerator) -> list[tuple[str, str]]:
    rates = [
        ("fp32", of.fp32_tflops),
        ("tf32", of.tf32_tflops),
        ("fp16", of.fp16_tflops),
        ("bf16", of.bf16_tflops),
        ("measured", of.measured_matmul_tflops),
    ]
    told = ", ".join(f"{name} {value:g}" for name, value in rates if value is not None)
    lines = [
        ("", ""),
        ("each accelerator", of.name),
        ("dense TFLOPS", told or UNKNOWN),
        ("memory", f"{number(of.memory_gib)} GiB at {number(of.memory_gb_per_second)} GB/s"),
        ("NVLink", "none known" if of.nvlink_gb_per_second is None else f"{of.nvlink_gb_per_second:g} GB/s, both ways"),
        ("PCIe", UNKNOWN if of.pcie_generation is None else f"Gen{of.pcie_generation}"),
        ("power", UNKNOWN if of.power_watts is None else f"{of.power_watts} W"),
    ]
    if of.note:
        lines.append(("note", of.note))
    if of.doubtful:
        lines.append(("not confirmed", ", ".join(sorted(of.doubtful))))
    return lines


def _support_lines(kind: str, support: Support) -> list[str]:
    lines = ["", _line(kind, answer(support))]
    lines += [_line("", reason.text) for reason in support.reasons]
    if support.nearest:
        lines.append(_line("", f"nearest: {', '.join(support.nearest)}"))
    return lines


def accelerators_text(shown: Sequence[Accelerator], *, width: int | None = 100, ascii_only: bool = False) -> str:
    """The accelerators, a line each; `?` marks a figure that no stored source confirms."""
    headers = ("ACCELERATOR", "FP32", "TF32", "FP16", "BF16", "GiB", "GB/s", "NVLINK GB/s", "PCIe")
    rows = [(one.name, *(_doubted(one, field) for field in _COLUMNS)) for one in shown]
    text = table(headers, rows, right=frozenset(headers[1:]), width=width, ascii_only=ascii_only)
    return f"{text}\ndense TFLOPS; - is unknown; ? is not confirmed by any source"


def _doubted(one: Accelerator, field: str) -> str:
    value = getattr(one, field)
    return "-" if value is None else f"{value:g}{'?' if field in one.doubtful else ''}"


def instances_facts(shown: Sequence[Described], not_judged: Sequence[str] = ()) -> dict[str, Any]:
    """The same for a program; null is unknown."""
    return {
        "schema": "paceline.instances/1",
        "instances": [_facts(one) for one in shown],
        "not_judged": list(not_judged),
    }


def accelerators_facts(shown: Sequence[Accelerator]) -> dict[str, Any]:
    """The accelerators for a program."""
    return {"schema": "paceline.instances/1", "accelerators": [accelerator_facts(one) for one in shown]}


def accelerator_facts(of: Accelerator) -> dict[str, Any]:
    """One accelerator for a program; `doubtful` is a sorted list."""
    return {**asdict(of), "doubtful": sorted(of.doubtful)}


def _facts(one: Described) -> dict[str, Any]:
    facts = asdict(one.machine)
    facts["accelerator_figures"] = accelerator_facts(one.accelerator) if one.accelerator is not None else None
    facts["spot"] = [asdict(price) for price in one.spot]
    facts["support"] = {kind: asdict(support) for kind, support in (one.kinds or {}).items()}
    return facts


def answer(support: Support) -> str:
    """ "yes", "yes, but", "no", "not judged"."""
    if support.allowed is None:
        return NOT_JUDGED
    if not support.allowed:
        return "no"
    return "yes, but" if support.reasons else "yes"


def yes(value: bool | None) -> str:
    """ "yes", "no", "unknown"."""
    return UNKNOWN if value is None else "yes" if value else "no"


def number(value: float | None) -> str:
    """The number without a trailing .0; "unknown" if it is not known."""
    return UNKNOWN if value is None else f"{value:.10g}"


def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}".rstrip()
