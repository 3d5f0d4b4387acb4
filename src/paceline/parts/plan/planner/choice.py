"""Which row to take: the cheapest or the fastest row that meets the limits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paceline.parts.plan.planner.answer import Fit, Row
from paceline.parts.plan.planner.completion import HOUR
from paceline.parts.plan.planner.question import PlanLimits

# A limit counts as met with at least this probability: the high end of the interval is that quantile.
SURE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChoice:
    """The recommended row and the reason."""

    row: Row | None
    """The row; None: no row meets the limits."""
    why: str
    """The reason."""
    nearest: Row | None = None
    """If no row meets the limits, the row that misses by least."""
    code: str = ""
    """P10 if limits were given and no row meets them."""


def choose(rows: Sequence[Row], limits: PlanLimits) -> MachineChoice:
    """The cheapest row that meets every limit; the fastest if only a budget is given; without prices the row with the fewest devices.

    Holds:   a row that is refused, does not fit or has no step time is never chosen; one in the grey zone only if none fits
    """
    possible = [
        row for row in rows if row.step is not None and not row.refused and row.memory.verdict is not Fit.DOES_NOT_FIT
    ]
    if not possible:
        return _nothing_runs(rows)
    if limits == PlanLimits() and all(row.usd is None and usd_per_sample(row) is None for row in possible):
        return MachineChoice(
            row=None,
            why=f"no row can be chosen: no limit is given (--deadline, --max-run, --budget), and {_no_cost(possible)}",
        )
    kept = [row for row in possible if keeps(row, limits)]
    if not kept:
        return _none_keeps(possible, limits)
    clear = [row for row in kept if row.memory.verdict is not Fit.GREY] or kept
    order, why = _order(clear, limits)
    best = min(clear, key=order)
    if best.memory.verdict is Fit.GREY:
        why += "; its memory is in the grey zone: try one step there first"
    return MachineChoice(row=best, why=why)


def _order(rows: Sequence[Row], limits: PlanLimits) -> tuple[Callable[[Row], tuple[float, ...]], str]:
    inside = " and ".join(_limit_texts(limits))
    inside = f" that meets {inside}" if inside else ""
    if limits.budget_usd is not None and limits.deadline_seconds is None and limits.max_run_seconds is None:
        return lambda row: (row.hours or 0.0, row.usd or 0.0), f"the fastest{inside}"
    if any(row.usd is not None for row in rows):
        return lambda row: (_or_last(row.usd), _or_last(row.hours)), f"the cheapest{inside}"
    if any(usd_per_sample(row) is not None for row in rows):
        return lambda row: (_or_last(usd_per_sample(row)),), f"the cheapest for each sample{inside}"
    return lambda row: (row.machines.devices, _or_last(row.hours)), f"the fewest devices{inside}; {_no_cost(rows)}"


def _no_cost(rows: Sequence[Row]) -> str:
    """What a cost is missing."""
    if all(row.usd_per_hour is None for row in rows):
        return "no price is known"
    return "neither a number of steps (--steps, or --epochs with --samples) nor a batch (--batch) is known to cost"


def usd_per_sample(row: Row) -> float | None:
    """Cost of one sample at this speed, without start-up; None if the price or the batch is unknown."""
    if row.usd_per_hour is None or not row.samples_per_second:
        return None
    return row.usd_per_hour / HOUR / row.samples_per_second


def keeps(row: Row, limits: PlanLimits) -> bool:
    """Whether every given limit is met with a probability of 0.9; a limit that cannot be judged is not met."""
    if limits.budget_usd is not None and (row.usd_high is None or row.usd_high > limits.budget_usd):
        return False
    seconds = [limit for limit in (limits.max_run_seconds, limits.deadline_seconds) if limit is not None]
    return not seconds or (row.hours_high is not None and row.hours_high * HOUR <= min(seconds))


def _none_keeps(possible: Sequence[Row], limits: PlanLimits) -> MachineChoice:
    texts = " and ".join(_limit_texts(limits))
    finite = [row for row in possible if row.hours_high is not None]
    if not finite:
        return MachineChoice(row=None, why=f"no row can be compared with {texts}: the hours are not judged", code="P10")
    timed = limits.max_run_seconds is not None or limits.deadline_seconds is not None
    if limits.budget_usd is not None and not timed:
        priced = [row for row in finite if row.usd_high is not None]
        if not priced:
            return MachineChoice(row=None, why=f"no row can be compared with {texts}: {_no_cost(finite)}", code="P10")
        nearest = min(priced, key=lambda row: _or_last(row.usd_high))
    elif limits.budget_usd is not None:
        in_time = [row for row in finite if keeps(row, replace(limits, budget_usd=None))]
        nearest = min(in_time or finite, key=lambda row: _or_last(row.usd_high if in_time else row.hours_high))
    else:
        nearest = min(finite, key=lambda row: _or_last(row.hours_high))
    return MachineChoice(
        row=None,
        why=f"no row of the table meets {texts} with a probability of {SURE:.0%}{_bought(nearest, limits)}",
        nearest=nearest,
        code="P10",
    )


def _bought(row: Row, limits: PlanLimits) -> str:
    """How far the budget and the limits reach on this row, start-up and epochs' ends included in the same share as of the whole run."""
    if (
        row.step is None
        or row.hours is None
        or not row.step_count
        or (limits.budget_usd is not None and not row.usd_per_hour)
    ):
        return ""
    besides = max(row.hours * HOUR - row.step_count * row.step.seconds, 0.0)
    paid = limits.budget_usd / row.usd_per_hour * HOUR if limits.budget_usd is not None and row.usd_per_hour else None
    until = min(one for one in (limits.max_run_seconds, limits.deadline_seconds, paid) if one is not None)
    steps = max(int((until - besides) / row.step.seconds), 0)
    enough = f"enough for {steps:,} of {row.step_count:,} steps"
    if paid == until:
        return f": {limits.budget_usd:,.10g} USD buy {until / HOUR:.3g} hours of {row.name}, {enough}"
    return f": {_hours(until)} of {row.name} are {enough}"


def _nothing_runs(rows: Sequence[Row]) -> MachineChoice:
    tight = [row for row in rows if row.memory.verdict is Fit.DOES_NOT_FIT]
    if tight and len(tight) == sum(not row.refused for row in rows):
        roomiest = max(tight, key=lambda row: row.memory.capacity_bytes or 0)
        return MachineChoice(row=None, why="the step fits into the memory of none of them", nearest=roomiest)
    if rows and all(row.refused for row in rows):
        return MachineChoice(row=None, why="the job may run on none of them")
    return MachineChoice(row=None, why="no step time could be judged")


def _limit_texts(limits: PlanLimits) -> list[str]:
    texts = []
    if limits.max_run_seconds is not None:
        texts.append(f"--max-run {_hours(limits.max_run_seconds)}")
    if limits.deadline_seconds is not None:
        texts.append(f"--deadline {_hours(limits.deadline_seconds)}")
    if limits.budget_usd is not None:
        texts.append(f"--budget {limits.budget_usd:,.10g} USD")
    return texts


def _hours(seconds: float) -> str:
    if seconds >= HOUR:
        return f"{seconds / HOUR:,.4g}h"
    return f"{seconds / 60:.3g}m" if seconds >= 60 else f"{seconds:.3g}s"


def _or_last(value: float | None) -> float:
    return float("inf") if value is None else value
