"""A plan as a page: the table, excluded rows and why, the choice, the single change that helps most, and the basis of it all."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from paceline.parts.plan.planner.advice import Advice
from paceline.parts.plan.planner.answer import Fit, Row
from paceline.parts.plan.planner.choice import usd_per_sample
from paceline.parts.plan.planner.evaluate import Plan
from paceline.spelling import plural
from paceline.terminal_text import BOLD, painted
from paceline.views.table import table
from paceline.views.units import UNKNOWN, count, percent, size

SHOWN = 20
# Ratio of the ends of an interval from which on hours and cost are only an order of magnitude.
WIDE = 3.0
_LABEL = 12
_TIERS = {0: "nothing measured", 1: "one measured step", 2: "measured at two sizes or more"}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TEXT_COLUMNS = frozenset({"TYPE", "MEMORY"})
# What a narrow page leaves out, in this order: a column with an interval loses the interval, the others disappear.
_GIVE_WAY = (
    "SPOT USD",
    "SAMPLES/S",
    "TIER",
    "USD",
    "EFF",
    "HOURS",
    "MINUTES",
    "DEVICES",
    "IN TIME",
    "STEP MS",
    "MEMORY",
)
_INTERVALS = frozenset({"HOURS", "MINUTES", "USD", "STEP MS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """How the page is shown."""

    width: int = 100
    """Columns of a line."""
    color: bool = False
    """With colours."""
    ascii_only: bool = False
    """Without characters beyond ASCII."""
    everything: bool = False
    """Show every row, not only the best ones."""


def plan_text(plan: Plan, page: PlanPage) -> str:
    """The whole page; empty blocks are left out."""
    blocks = [
        "\n".join(wrap(_head(plan), page.width)),
        _table(plan, page),
        *_refusals(plan, page),
        *_choice(plan, page),
        *_advice(plan, page),
    ]
    warnings = dict.fromkeys(
        (*plan.question.warnings, *(text for row in shown_rows(plan, page) for text in row.warnings))
    )
    blocks += _listed("warning", warnings, page)
    assumed = [one.what + (f" ({one.file}:{one.line})" if one.file else "") for one in plan.assumptions]
    blocks += _listed("taken for granted", assumed, page)
    blocks += _listed("not judged", plan.not_judged, page)
    return "\n\n".join(block for block in blocks if block)


def shown_rows(plan: Plan, page: PlanPage) -> list[Row]:
    """The rows of the table: all if there are few, otherwise the best by cost if it is known, then by time; the chosen row first."""
    live = [row for row in plan.rows if not row.refused]
    if page.everything or len(live) <= SHOWN:
        return live
    chosen = plan.choice.row or plan.choice.nearest
    best = sorted((row for row in live if row is not chosen), key=_goodness)
    return [*([chosen] if chosen is not None else []), *best][:SHOWN]


def interval(
    middle: float | None, low: float | None, high: float | None, spell: Callable[[float], str] | None = None
) -> str:
    """ "310 (290..335)": three significant digits in each, or as `spell` writes a number."""
    spell = spell or figure
    if middle is None:
        return UNKNOWN
    if low is None or high is None or (spell(low) == spell(middle) == spell(high)):
        return spell(middle)
    return f"{spell(middle)} ({spell(low)}..{spell(high)})"


def figure(value: float) -> str:
    """Three significant digits: "0.124", "31.2", "1240"."""
    if value >= 1e7:
        return f"{value:.3g}"
    if value >= 1000:
        return f"{round(value, 3 - len(str(int(value)))):.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}" if value >= 0.001 else "0"


def dollars(value: float) -> str:
    """Cents below 10 USD, then three significant digits: "0.04", "9.50", "31.2"."""
    if value < 0.005:
        return "0" if value == 0 else "<0.01"
    return f"{value:.2f}" if value < 9.995 else figure(value)


def where(row: Row) -> str:
    """The machines of a row as text: "2 x p4d.24xlarge (16 devices)"."""
    devices = row.machines.devices
    return f"{row.machines.hosts} x {row.name} ({devices} {plural(devices, 'device')})"


# -------------------------------------------------------------------------------------------------------------------- table


def _head(plan: Plan) -> str:
    workload = plan.question.workload
    parts = [workload.name or "the step as given"]
    if workload.parameter_count is not None:
        parts.append(f"{figure(workload.parameter_count / 1e6)} M parameters")
    if workload.gradient_bytes is not None:
        parts.append(f"gradients {size(workload.gradient_bytes)}")
    if workload.batch is not None:
        times = f" x {workload.microbatches}" if workload.microbatches > 1 else ""
        parts.append(f"batch {workload.batch}{times} a device")
    if workload.precision is not None:
        parts.append(str(workload.precision))
    parts.append(str(workload.strategy))
    tiers = sorted({row.step.tier for row in plan.rows if row.step is not None})
    parts += [f"tier {tier}: {_TIERS[tier]}" for tier in tiers]
    return ", ".join(parts)


def _table(plan: Plan, page: PlanPage) -> str:
    rows = shown_rows(plan, page)
    if not rows:
        return "no machines left to judge"
    columns = {header: cells for header, cells in _columns(rows).items() if any(cell != UNKNOWN for cell in cells)}
    for header in _GIVE_WAY:
        if _width(columns) <= page.width:
            break
        if header in _INTERVALS and header in columns:
            columns[header] = [_middle(cell) for cell in columns[header]]
        else:
            columns.pop(header, None)
    headers = list(columns)
    cells = [list(line) for line in zip(*columns.values(), strict=True)]
    text = table(headers, cells, right=frozenset(headers) - _TEXT_COLUMNS, width=page.width, ascii_only=page.ascii_only)
    lines = text.splitlines()
    chosen = plan.choice.row
    if page.color:
        lines = [
            lines[0],
            *(painted(BOLD, line) if row is chosen else line for line, row in zip(lines[1:], rows, strict=True)),
        ]
    left = sum(not row.refused for row in plan.rows) - len(rows)
    if left:
        lines.append(f"and {count(left)} more {plural(left, 'row')} (--all, --json)")
    return "\n".join(lines)


def _columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    steps = [row.step for row in rows]
    tiers = {step.tier for step in steps if step is not None}
    found = {
        "TYPE": [row.name for row in rows],
        "HOSTS": [count(row.machines.hosts) for row in rows],
        "DEVICES": [count(row.machines.devices) for row in rows],
        "MEMORY": [str(row.memory.verdict) for row in rows],
        "STEP MS": [
            interval(step.seconds * 1e3, step.low_seconds * 1e3, step.high_seconds * 1e3) if step else UNKNOWN
            for step in steps
        ],
        "SAMPLES/S": [
            figure(row.samples_per_second) if row.samples_per_second is not None else UNKNOWN for row in rows
        ],
        "EFF": [percent(row.efficiency_fraction) for row in rows],
        **_time_column(rows),
        "IN TIME": [_likely(row.within_probability) for row in rows],
        "USD": [interval(row.usd, row.usd_low, row.usd_high, dollars) for row in rows],
        "SPOT USD": [dollars(row.spot_usd) if row.spot_usd is not None else UNKNOWN for row in rows],
    }
    if len(tiers) > 1:
        found["TIER"] = [str(step.tier) if step else UNKNOWN for step in steps]
    return found


def _time_column(rows: Sequence[Row]) -> dict[str, list[str]]:
    """How long the job takes: in minutes if every row is below an hour, otherwise in hours."""
    if all(row.hours is None or row.hours < 1 for row in rows):
        minutes = [(_minutes(row.hours), _minutes(row.hours_low), _minutes(row.hours_high)) for row in rows]
        return {"MINUTES": [interval(middle, low, high) for middle, low, high in minutes]}
    return {"HOURS": [interval(row.hours, row.hours_low, row.hours_high) for row in rows]}


def _minutes(hours: float | None) -> float | None:
    return None if hours is None else hours * 60


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(len(header), *map(len, cells)) for header, cells in columns.items()) + 2 * (len(columns) - 1)


def _middle(cell: str) -> str:
    return cell.partition(" (")[0]


def _likely(probability: float | None) -> str:
    """A percentage that never says 0 or 100: an interval promises neither."""
    if probability is None:
        return UNKNOWN
    return "<1%" if probability < 0.01 else ">99%" if probability > 0.99 else percent(probability)


def _goodness(row: Row) -> tuple[float, ...]:
    last = float("inf")
    order = {Fit.FITS: 0.0, Fit.NOT_JUDGED: 1.0, Fit.GREY: 2.0, Fit.DOES_NOT_FIT: 3.0}[row.memory.verdict]
    spent = row.usd if row.usd is not None else usd_per_sample(row)
    seconds = row.step.seconds / row.machines.devices if row.step is not None else last
    return (float(row.step is None), float(order == 3.0), last if spent is None else spent, order, seconds)


# ------------------------------------------------------------------------------------------------------------ what follows it


def _refusals(plan: Plan, page: PlanPage) -> Iterator[str]:
    """Refused types by their reason; reasons that differ only in a number or in the accelerator's name are one."""
    names: dict[str, list[str]] = {}
    numbers: dict[str, list[list[str]]] = {}
    for row in plan.rows:
        if row.refused and row.name not in names.get(reason := _general(row), ()):
            names.setdefault(reason, []).append(row.name)
            numbers.setdefault(reason, []).append(_NUMBER.findall(_anonymous(row)))
    if not names:
        return
    lines = ["refused"]
    for reason, types in sorted(names.items(), key=lambda item: -len(item[1])):
        spans = iter([_span(column) for column in zip(*numbers[reason], strict=True)])
        text = _NUMBER.sub("{}", reason).format(*spans) if "{" not in reason else reason
        shown = ", ".join(types[:3]) + (f" and {len(types) - 3} more" if len(types) > 3 else "")
        lines += wrap(f"{text}: {shown}", page.width, initial_indent="  ", subsequent_indent="    ")
    yield "\n".join(lines)


def _anonymous(row: Row) -> str:
    device = row.machines.device
    reason = row.refused[0]
    return reason.replace(device.name, "its accelerator") if device is not None else reason


def _general(row: Row) -> str:
    return _NUMBER.sub("0", _anonymous(row))


def _span(texts: Sequence[str]) -> str:
    """ "2..192" of all the numbers in one place of a reason."""
    ordered = sorted(set(texts), key=float)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]}..{ordered[-1]}"


def _choice(plan: Plan, page: PlanPage) -> Iterator[str]:
    choice = plan.choice
    row = choice.row or choice.nearest
    if row is None:
        yield "\n".join(_rows("choice", [_marked(choice.code) + choice.why], page))
        return
    if choice.row is not None:
        texts = [f"{where(row)}: {choice.why}"]
    else:
        texts = [_marked(choice.code) + choice.why, f"the nearest is {where(row)}{_misses(row)}"]
    if row.step is not None:
        texts.append(f"its step: {_shares(row)}")
        texts += list(_width_told(row))
    texts += list(_money(row))
    yield "\n".join(_rows("choice", texts, page))


def _width_told(row: Row) -> Iterator[str]:
    """A note about an interval that is too wide for hours and cost."""
    step = row.step
    if step is None or step.tier > 0 or step.high_seconds < WIDE * step.low_seconds:
        return
    less, more = step.low_seconds / step.seconds, step.high_seconds / step.seconds
    yield (
        f"there is no measurement: the step may take {less:.2g} to {more:.2g} times as long. This ranks machines; for hours and cost, "
        "measure one step (--measured-step-ms, --from-run)"
    )


def _marked(code: str) -> str:
    return f"[{code}] " if code else ""


def _misses(row: Row) -> str:
    parts = []
    if row.hours is not None:
        parts.append(f"{interval(row.hours, row.hours_low, row.hours_high)} hours")
    if row.usd is not None:
        parts.append(f"{interval(row.usd, row.usd_low, row.usd_high, dollars)} USD")
    if row.memory.need_bytes is not None and row.memory.verdict is Fit.DOES_NOT_FIT:
        parts.append(f"needs {size(row.memory.need_bytes)} of {size(row.memory.capacity_bytes)}")
    return ": " + ", ".join(parts) if parts else ""


def _shares(row: Row) -> str:
    """Where the time of a step goes, the largest part first."""
    step = row.step
    if step is None or step.seconds <= 0:
        return UNKNOWN
    parts = sorted(step.terms.items(), key=lambda item: -item[1])
    return ", ".join(
        f"{name.replace('multi_device', 'multi-device').replace('_', ' ')} {percent(seconds / step.seconds)}"
        for name, seconds in parts
        if seconds > 0
    )


def _money(row: Row) -> Iterator[str]:
    parts = []
    if row.spot_usd is not None:
        parts.append(
            f"on spot {dollars(row.spot_usd)} USD ({row.spot_zone})"
            if row.spot_zone
            else f"on spot {dollars(row.spot_usd)} USD"
        )
    if row.sagemaker_usd is not None:
        parts.append(f"on SageMaker {dollars(row.sagemaker_usd)} USD at an old price")
    if row.zone_traffic_usd:
        parts.append(f"{dollars(row.zone_traffic_usd)} USD of it for traffic between zones")
    if parts:
        yield "; ".join(parts)


def _advice(plan: Plan, page: PlanPage) -> Iterator[str]:
    if not plan.advice:
        return
    best = plan.advice[0]
    texts = [f"{best.change}: {_gain(best)}", f"{best.how}; {best.note}" if best.note else best.how]
    texts += [f"also: {other.change}, {_gain(other)}" for other in plan.advice[1:3]]
    yield "\n".join(_rows("helps most", texts, page))


def _gain(advice: Advice) -> str:
    if advice.gain_fraction is None:
        return "then the step fits" if advice.after.memory.verdict is Fit.FITS else "then the step may fit"
    text = f"{percent(advice.gain_fraction)} less {advice.aim} for each sample"
    if advice.before.step is not None and advice.after.step is not None and advice.before.name == advice.after.name:
        text += f" (step {figure(advice.before.step.seconds * 1e3)} to {figure(advice.after.step.seconds * 1e3)} ms)"
    return text if advice.certain else f"{text}, within the intervals: not certain"


def _listed(label: str, texts: Iterable[str], page: PlanPage) -> Iterator[str]:
    texts = list(texts)
    if not texts:
        return
    most = len(texts) if page.everything or len(texts) <= 8 else 7
    lines = [label]
    for text in texts[:most]:
        lines += wrap(text, page.width, initial_indent="  ", subsequent_indent="    ")
    if most < len(texts):
        lines.append(f"  and {len(texts) - most} more (--all, --json)")
    yield "\n".join(lines)


def _rows(label: str, texts: Sequence[str], page: PlanPage) -> list[str]:
    """The label before the first text only; long texts continue below themselves."""
    lines = []
    for place, text in enumerate(texts):
        head = f"{label if place == 0 else '':<{_LABEL}}"
        lines += wrap(text, page.width, initial_indent=head, subsequent_indent=" " * _LABEL) or [head.rstrip()]
    return lines
