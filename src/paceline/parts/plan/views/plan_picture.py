"""A plan as a picture: step, time to the end and cost by number of devices with intervals, or as bars where each type has one size."""

from collections.abc import Callable, Iterator, Sequence

from paceline.parts.plan.planner.answer import Fit, Row
from paceline.parts.plan.planner.completion import HOUR
from paceline.parts.plan.planner.evaluate import Plan
from paceline.parts.plan.views.plan import PlanPage, dollars, figure, shown_rows, where
from paceline.parts.web.views.svg import BOTH, Axis, Bar, Bars, Chart, Draw, Palette, Point, Series, picture
from paceline.spelling import plural
from paceline.views.units import count

# More lines than colours cannot be told apart.
_MOST_TYPES = 6
_Value = Callable[[Row], tuple[float | None, float | None, float | None]]


def plan_svg(plan: Plan, *, palette: Palette = BOTH) -> str:
    """The picture. Rows that do not fit and those that miss a limit are in it too; what is left out is said below.

    Holds:   every number in it is in `plan_json` too
    """
    rows = [row for row in plan.rows if not row.refused and row.step is not None]
    name = plan.question.workload.name or "the step as given"
    if any(_sizes(rows, kind) > 1 for kind in _kinds(rows)):
        kinds, charts = _curves(plan, rows)
        parts: Sequence[Chart | Bars] = charts
        left = _more(len(_kinds(rows)) - len(kinds), "type")
    else:
        shown = [row for row in shown_rows(plan, PlanPage()) if row.step is not None]
        parts = _bars(plan, shown)
        left = _more(len(rows) - len(shown), "row")
    return picture(f"Plan of {name}", _desc(plan), parts, notes=_notes(plan, left), palette=palette)


def _kinds(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.name for row in rows))


def _sizes(rows: Sequence[Row], kind: str) -> int:
    return len({row.machines.devices for row in rows if row.name == kind})


def _measures(rows: Sequence[Row]) -> Iterator[tuple[str, str, _Value, Callable[[float], str]]]:
    """Title, unit, value with its interval, and spelling of each quantity that is known of some row."""
    yield (
        "Time of a step",
        "ms",
        lambda row: (
            (row.step.seconds * 1e3, row.step.low_seconds * 1e3, row.step.high_seconds * 1e3)
            if row.step
            else (None, None, None)
        ),
        figure,
    )
    if any(row.hours is not None for row in rows):
        yield "Time to the end", "hours", lambda row: (row.hours, row.hours_low, row.hours_high), figure
    if any(row.usd is not None for row in rows):
        yield "Cost", "USD", lambda row: (row.usd, row.usd_low, row.usd_high), dollars
    elif any(row.samples_per_second is not None for row in rows):
        yield "Throughput", "samples/s", lambda row: (row.samples_per_second, None, None), figure


# ------------------------------------------------------------------------------------------------------------------ curves


def _curves(plan: Plan, rows: Sequence[Row]) -> tuple[list[str], list[Chart]]:
    chosen = plan.choice.row or plan.choice.nearest
    best = [*([chosen] if chosen is not None else []), *shown_rows(plan, PlanPage()), *rows]
    kinds = [kind for kind in _kinds(best) if kind in _kinds(rows)][:_MOST_TYPES]
    drawn = [row for kind in kinds for row in rows if row.name == kind]
    sizes = {float(row.machines.devices) for row in drawn} | {float(one.devices) for one in plan.question.measurements}
    x = Axis(title="devices", is_log=True, at=tuple(sorted(sizes)))
    return kinds, [
        Chart(
            title=title,
            x=x,
            y=Axis(title=unit),
            series=(*_lines(kinds, drawn, value), *_dots(plan, drawn, value, with_measured=unit == "ms")),
            limit=_limit(plan, unit),
        )
        for title, unit, value, _ in _measures(drawn)
    ]


def _lines(kinds: Sequence[str], rows: Sequence[Row], value: _Value) -> Iterator[Series]:
    for kind in kinds:
        same = sorted((row for row in rows if row.name == kind), key=lambda row: row.machines.devices)
        yield Series(name=kind, points=tuple(_points(same, value)))


def _dots(plan: Plan, rows: Sequence[Row], value: _Value, *, with_measured: bool) -> Iterator[Series]:
    """Marks over the lines: what was measured, what does not fit, what to take."""
    if with_measured and plan.question.measurements:
        measured = tuple(Point(one.devices, one.step_seconds * 1e3) for one in plan.question.measurements)
        on = plan.question.measured_type or (plan.question.measured_on.name if plan.question.measured_on else "")
        name = f"measured on {on}" if on else "measured"
        yield Series(name=name, points=measured, draw=Draw.DOTS, is_neutral=True)
    outside = [row for row in rows if row.memory.verdict is Fit.DOES_NOT_FIT]
    if outside:
        yield Series(name="does not fit", points=tuple(_bare(outside, value)), draw=Draw.HOLLOW, is_neutral=True)
    if plan.choice.row is not None:
        points = tuple(_bare([plan.choice.row], value))
        yield Series(name="choice", points=points, draw=Draw.RING, is_neutral=True)


def _points(rows: Sequence[Row], value: _Value) -> Iterator[Point]:
    for row in rows:
        middle, low, high = value(row)
        if middle is not None:
            yield Point(row.machines.devices, middle, low, high)


def _bare(rows: Sequence[Row], value: _Value) -> Iterator[Point]:
    return (Point(point.x, point.y) for point in _points(rows, value))


def _limit(plan: Plan, unit: str) -> tuple[float, str] | None:
    limits = plan.question.limits
    seconds = limits.max_run_seconds if limits.max_run_seconds is not None else limits.deadline_seconds
    if unit == "hours" and seconds is not None:
        return (
            seconds / HOUR,
            f"{'--max-run' if limits.max_run_seconds is not None else '--deadline'} {figure(seconds / HOUR)} h",
        )
    if unit == "USD" and limits.budget_usd is not None:
        return limits.budget_usd, f"--budget {dollars(limits.budget_usd)}"
    return None


# -------------------------------------------------------------------------------------------------------------------- bars


def _bars(plan: Plan, rows: Sequence[Row]) -> list[Bars]:
    return [
        Bars(
            title=f"{title}, {unit}",
            bars=tuple(_bar(plan, row, value(row), spell) for row in rows),
            limit=_limit(plan, unit),
        )
        for title, unit, value, spell in _measures(rows)
    ]


def _bar(
    plan: Plan, row: Row, found: tuple[float | None, float | None, float | None], spell: Callable[[float], str]
) -> Bar:
    value, low, high = found
    is_outside = row.memory.verdict is Fit.DOES_NOT_FIT
    text = "not known" if value is None else spell(value)
    return Bar(
        label=where(row),
        value=value,
        low=low,
        high=high,
        text=f"{text}, does not fit" if is_outside else f"{text}, choice" if row is plan.choice.row else text,
        is_marked=row is plan.choice.row,
        is_hollow=is_outside,
    )


# ------------------------------------------------------------------------------------------------------------------- words


def _desc(plan: Plan) -> str:
    row = plan.choice.row
    return f"{where(row)}: {plan.choice.why}." if row is not None else f"No choice: {plan.choice.why}."


def _notes(plan: Plan, left: str) -> Iterator[str]:
    yield f"Choice: {_desc(plan)}" if plan.choice.row is not None else _desc(plan)
    if any(row.step is not None for row in plan.rows):
        yield "Bands and whiskers cover at least 80 % of held-out cases."
    else:
        yield "Nothing to draw: no row has a step time."
    unknown = sum(1 for row in plan.rows if row.step is None and not row.refused)
    refused = sum(1 for row in plan.rows if row.refused)
    out = [
        left,
        f"{count(unknown)} {plural(unknown, 'row')} without a known step" if unknown else "",
        f"{count(refused)} refused {plural(refused, 'row')}" if refused else "",
    ]
    if any(out):
        yield f"Not drawn: {', '.join(filter(None, out))}; the table has them."


def _more(number: int, noun: str) -> str:
    return f"{count(number)} more {plural(number, noun)}" if number else ""
