"""Every formula behind the rows of a plan, with its numbers and their sources."""

from collections.abc import Iterator
from textwrap import wrap

from paceline.parts.plan.planner.answer import Formula
from paceline.parts.plan.planner.evaluate import Plan, explained
from paceline.parts.plan.views.plan import PlanPage, shown_rows, where
from paceline.views.units import UNKNOWN


def explain_text(plan: Plan, page: PlanPage) -> str:
    """One block for each row of the table."""
    blocks = []
    for row in shown_rows(plan, page):
        lines = [where(row)]
        for formula in explained(plan, row):
            lines += _lines(formula, page)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _lines(formula: Formula, page: PlanPage) -> Iterator[str]:
    result = UNKNOWN if formula.result is None else f"{formula.result:.6g} {formula.unit}"
    yield from wrap(f"{formula.name} = {formula.text}", page.width, initial_indent="  ", subsequent_indent="      ")
    yield f"    = {result}"
    values = ", ".join(f"{name}={_value(value)}" for name, value in formula.values.items())
    yield from wrap(values, page.width, initial_indent="    ", subsequent_indent="    ")
    if formula.source:
        yield from wrap(f"source: {formula.source}", page.width, initial_indent="    ", subsequent_indent="      ")


def _value(value: float | int | str | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
