"""The sections on step times: predicted from one and from two measured steps, on rows that no constant was fitted on."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

from fit import EFFICIENCY, Case, between_cases, fit, inside_cases, two_device_cases, two_host_cases
from published import Experiment, experiments

from paceline.parts.plan.planner.fitted_constants import Fitted
from paceline.parts.plan.planner.links import LinkClass
from paceline.parts.plan.planner.step_time import step_time

SPLITS: dict[str, Callable[[Experiment], str]] = {"source": lambda one: one.source, "workload": lambda one: one.model}
# Boxes that keep far less than others with the same devices: the cause is not documented.
BROKEN = ("A100_40GB_SXM4_v1", "A100_80GB_SXM4_v1", "LambdaCloud_V100_16GB_v1")
NO_PEER_ACCESS = ("RTX 20", "RTX 30", "RTX 40", "RTX20", "GTX")
WORST = 10


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A row and what was predicted for it, with constants from the rows of the other parts."""

    case: Case
    seconds: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Of the step time, over the measured one; above 0: predicted slower than it was."""
        return self.seconds / self.case.seconds - 1

    @property
    def covered(self) -> bool:
        return self.low <= self.case.seconds <= self.high

    @property
    def linear_error(self) -> float:
        """Of the guess that nothing is lost beyond the last anchor."""
        return self.case.anchor_seconds[-1] / self.case.seconds - 1

    @property
    def broken(self) -> bool:
        return any(name in point.row["notes"] for point in self.case.experiment.points for name in BROKEN)


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One kind of question: what is measured, what is asked."""

    key: str
    title: str
    note: str
    cases: Callable[[Sequence[Experiment]], list[Case]]
    keep: Callable[[Case], bool]


def _whole_host(case: Case) -> bool:
    return case.anchors[0].per_host == case.target.per_host


TIERS = (
    Tier(
        key="hosts",
        title="Two measured host counts -> more hosts",
        note="From the two smallest counts. Target: 4 %. Linear: the step of the second count.",
        cases=two_host_cases,
        keep=lambda case: True,
    ),
    Tier(
        key="nvlink",
        title="One device -> the devices of an NVLink host",
        note="NVSwitch and cube-mesh. Target: 6 %. Linear: the step of one device.",
        cases=inside_cases,
        keep=lambda case: case.kind in (LinkClass.NVSWITCH, LinkClass.CUBE_MESH),
    ),
    Tier(
        key="pcie",
        title="One device -> the devices of a PCIe host",
        note="With and without bridges between pairs. Target: 9 %. Linear: the step of one device.",
        cases=inside_cases,
        keep=lambda case: case.kind is LinkClass.PCIE,
    ),
    Tier(
        key="devices",
        title="Two measured device counts -> more devices of the host",
        note="No target. Linear: the step of the second count.",
        cases=two_device_cases,
        keep=lambda case: True,
    ),
    Tier(
        key="host-hosts",
        title="One host -> several hosts, from the rate of the network",
        note="Target: the interval covers 80 %. Linear: the step of one host.",
        cases=between_cases,
        keep=_whole_host,
    ),
    Tier(
        key="device-hosts",
        title="One device -> several hosts, from the links' specifications",
        note="Target: the interval covers 80 %. Linear: the step of one device.",
        cases=between_cases,
        keep=lambda case: not _whole_host(case),
    ),
)


def predictions(tier: Tier, split: str) -> list[Predicted]:
    """Every row of a tier, its part (its source, or its workload) held out of the fit."""
    part = SPLITS[split]
    found = []
    for case in tier.cases(_experiments()):
        if tier.keep(case):
            found.append(_predict(case, _fitted_without(split, part(case.experiment))))
    return found


def headline() -> dict[str, dict[str, tuple[int, float, float]]]:
    """tier -> split -> (rows, mean absolute error, share covered), of the usual rows."""
    found: dict[str, dict[str, tuple[int, float, float]]] = {}
    for tier in TIERS:
        for split in SPLITS:
            usual = [one for one in predictions(tier, split) if one.case.usual]
            error, _, _, covered, _, _ = _figures(usual)
            found.setdefault(tier.key, {})[split] = (len(usual), error, covered)
    return found


def section() -> str:
    """Markdown."""
    low, high = EFFICIENCY
    lines = [
        "## Step times from measured steps",
        "",
        "Mean absolute error of the step time, its median and 90th hundredth, and how many rows the interval covers. Constants fitted",
        "without the row's source, and without its workload. *Usual* rows are those of an efficiency between",
        f"{low:.0%} and {high:.0%}; *all* has the rest too: hosts that reach a tenth of their link, and runs that got faster.",
        "",
    ]
    for tier in TIERS:
        lines += [f"### {tier.title}", "", tier.note, ""]
        lines += _table(tier)
        lines += _worst(predictions(tier, "source"))
    return "\n".join(lines)


def _table(tier: Tier) -> list[str]:
    head = "| held out | rows | of | error | median | 90 % below | covered | width | linear |"
    lines = [head, "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for split in SPLITS:
        found = predictions(tier, split)
        lines.append(_line(split, "all", found))
        lines.append(_line(split, "usual", [one for one in found if one.case.usual]))
        sound = [one for one in found if one.case.usual and not one.broken]
        if len(sound) < sum(one.case.usual for one in found):
            lines.append(_line(split, "usual, without the broken boxes", sound))
    by_source = [one for one in predictions(tier, "source") if one.case.usual]
    lines += ["", head.replace("held out", "by"), "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for of, name in (
        ("source", lambda one: one.case.experiment.source),
        ("link", lambda one: str(one.case.kind)),
        ("hardware", lambda one: one.case.experiment.gpu.removeprefix("NVIDIA ")),
        ("workload", lambda one: one.case.experiment.model),
    ):
        parts: dict[str, list[Predicted]] = defaultdict(list)
        for one in by_source:
            parts[name(one)].append(one)
        lines += [_line(of, key, parts[key]) for key in sorted(parts)]
    return [*lines, ""]


def _line(first: str, second: str, found: Sequence[Predicted]) -> str:
    error, middle, tail, covered, width, linear = _figures(found)
    return f"| {first} | {second} | {len(found)} | {error:.1%} | {middle:.1%} | {tail:.0%} | {covered:.0%} | {width:.0%} | {linear:.1%} |"


def _figures(found: Sequence[Predicted]) -> tuple[float, float, float, float, float, float]:
    errors = sorted(abs(one.error) for one in found)
    return (
        fmean(errors),
        median(errors),
        errors[min(len(errors) - 1, round(0.9 * (len(errors) - 1)))],
        fmean(one.covered for one in found),
        median((one.high - one.low) / one.seconds for one in found),
        fmean(abs(one.linear_error) for one in found),
    )


def _worst(found: Sequence[Predicted]) -> list[str]:
    lines = ["The worst ten of all rows, their source held out:", "", "| error | row | why |", "|---:|---|---|"]
    seen = []
    for one in sorted(found, key=lambda one: -abs(one.error)):
        name = f"{one.case.experiment.name}: {_shape(one)}"
        if name in seen:
            continue
        seen.append(name)
        lines.append(f"| {one.error:+.0%} | {name} | {_why(one)} |")
        if len(seen) == WORST:
            break
    return [*lines, ""]


def _shape(one: Predicted) -> str:
    anchors = ", ".join(f"{anchor.hosts}x{anchor.per_host}" for anchor in one.case.anchors)
    return f"{anchors} -> {one.case.target.hosts}x{one.case.target.per_host}"


def _why(one: Predicted) -> str:
    case = one.case
    lost = case.anchor_seconds[-1] / case.seconds
    if one.broken:
        return f"this box keeps {lost:.0%} of its throughput; other boxes with these devices keep 90 % and more"
    if lost > EFFICIENCY[1]:
        return f"measured {lost:.2f} times as fast for each device as the anchor: the runs were not alike"
    if case.experiment.source == "Lambda" and any(case.experiment.gpu.startswith(name) for name in NO_PEER_ACCESS):
        return f"keeps {lost:.0%}: no peer access between GeForce devices, the exchange goes through the host's memory"
    if case.experiment.model in ("Tacotron2", "WaveGlow", "FastSpeech", "Mask R-CNN R50-FPN"):
        return f"keeps {lost:.0%}: samples of unequal length or input limit the step, not the exchange"
    if case.experiment.source == "DLPerf":
        return f"keeps {lost:.0%}: the framework's input or exchange, which others on the same hosts do not show"
    return f"keeps {lost:.0%} of its throughput; the row does not say why"


@cache
def _experiments() -> tuple[Experiment, ...]:
    return tuple(experiments())


@cache
def _fitted_without(split: str, part: str) -> Fitted:
    return fit([one for one in _experiments() if SPLITS[split](one) != part])


def _predict(case: Case, constants: Fitted) -> Predicted:
    measured = [found for anchor in case.anchors if (found := case.experiment.measurement(anchor)) is not None]
    step = step_time(case.experiment.machines(case.target), case.experiment.workload(), measured, fitted=constants)
    return Predicted(case=case, seconds=step.seconds, low=step.low_seconds, high=step.high_seconds)
