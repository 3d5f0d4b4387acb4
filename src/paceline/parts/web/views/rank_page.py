"""One rank of a run as HTML: its processes, its newest steps, its CPU and memory, where it was last seen."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from paceline.facts import Evidence, RankRecord
from paceline.views.report.drawing import curves
from paceline.views.report.markup import Markup, element, joined
from paceline.views.units import UNKNOWN, count, counted, duration, milliseconds, percent, size, stamp

# Points of a curve; of more values each point is the largest of some.
_MOST_POINTS = 600


def rank_html(evidence: Evidence, rank: int, stack: str | None) -> Markup:
    """The drawer of a rank. `stack`: where it was last seen, as text."""
    records = [record for record in evidence.ranks if record.rank == rank]
    if not records:
        return element("div", element("p", f"This recording has no rank {rank}."))
    newest = max(records, key=lambda record: (record.attempt, record.step_count or 0))
    parts: list[object] = [_processes(records), *_steps(newest), *_usage(evidence, newest)]
    if stack:
        parts += [element("h3", "Where it was last seen"), element("pre", stack, tabindex="0")]
    return element("div", *parts)


def _processes(records: Iterable[RankRecord]) -> Markup:
    names = ("attempt", "host", "pid", "steps", "ms a step", "data", "communication", "checkpoint", "last step", "end")
    head = element("tr", *(element("th", name, scope="col") for name in names))
    body = (element("tr", *(element("td", cell) for cell in _process(record))) for record in records)
    table = element("table", element("caption", "Its processes"), element("thead", head), element("tbody", *body))
    return element("div", table, class_="box", tabindex="0", role="region", aria_label="Processes of this rank")


def _process(record: RankRecord) -> tuple[str, ...]:
    whole = record.step_seconds
    per_step = whole / record.step_count if whole and record.step_count else None
    shares = (
        percent(part / whole if whole and part is not None else None)
        for part in (record.data_seconds, record.communication_seconds, record.checkpoint_seconds)
    )
    ended = UNKNOWN if record.exit is None else f"exit {record.exit.code}"
    if record.exit is not None and record.exit.error is not None:
        ended = f"{ended}, {record.exit.error.type}"
    return (
        str(record.attempt),
        record.host,
        UNKNOWN if record.pid is None else str(record.pid),
        count(record.step_count),
        milliseconds(per_step),
        *shares,
        stamp(record.last_step_ns or None),
        ended,
    )


def _steps(record: RankRecord) -> list[object]:
    if not record.steps:
        return [element("p", "Its single steps are not in this recording.", class_="dim")]
    whole = [step.duration_ns / 1e9 for step in record.steps]
    waiting = [(step.data_ns + step.communication_ns) / 1e9 for step in record.steps]
    title = f"Its newest {counted(len(whole), 'step')}, and the part in which it waited for data or other ranks"
    first, last = record.steps[0], record.steps[-1]
    span = f"step {count(first.index)} to {count(last.index)}, {duration((last.end_ns - first.end_ns) / 1e9)}"
    lines = [("", _largest(whole)), ("peak", _largest(waiting))]
    return [element("h3", title), curves("Steps of the rank", lines, milliseconds), element("p", span, class_="dim")]


def _usage(evidence: Evidence, record: RankRecord) -> list[object]:
    samples = [
        (line.get("t_ns"), sample)
        for line in evidence.telemetry.get(record.host, ())
        if isinstance(sample := _mapping(_mapping(line).get("ranks")).get(str(record.rank)), Mapping)
    ]
    memory = [_number(sample.get("resident_bytes")) for _, sample in samples]
    drawn: list[object] = []
    for title, values, spell in (("CPU cores in use", _rates(samples), _cores), ("Memory", memory, size)):
        if any(value is not None for value in values):
            drawn += [element("h3", title), curves(title, [("", _largest(values))], spell)]
    return [joined(drawn)] if drawn else [element("p", "Its CPU and memory are not in this recording.", class_="dim")]


def _rates(samples: Sequence[tuple[Any, Mapping[str, Any]]]) -> list[float | None]:
    found: list[float | None] = []
    for (before_ns, before), (t_ns, sample) in pairwise(samples):
        used, earlier = _number(sample.get("cpu_seconds")), _number(before.get("cpu_seconds"))
        span = (_number(t_ns) or 0.0) - (_number(before_ns) or 0.0)
        is_rate = used is not None and earlier is not None and used >= earlier and span > 0
        found.append((used - earlier) / (span / 1e9) if is_rate else None)  # type: ignore[operator]
    return found


def _cores(value: float) -> str:
    return f"{value:.1f}"


def _largest(values: Sequence[float | None]) -> list[float | None]:
    width = -(-len(values) // _MOST_POINTS)
    parts = (values[at : at + width] for at in range(0, len(values), max(width, 1)))
    return [max((one for one in part if one is not None), default=None) for part in parts]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
