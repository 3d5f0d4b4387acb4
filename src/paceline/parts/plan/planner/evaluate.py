"""The answer: a row for each candidate, the choice among them, and the change that helps most."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paceline.parts.plan.planner.advice import Advice, advise
from paceline.parts.plan.planner.answer import Fit, Formula, Row
from paceline.parts.plan.planner.choice import MachineChoice, choose
from paceline.parts.plan.planner.question import PlanQuestion
from paceline.parts.plan.planner.rows import Rows
from paceline.parts.plan.planner.workload import Assumption


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer to a question."""

    question: PlanQuestion
    """The question."""
    rows: tuple[Row, ...]
    """One row for each candidate, in the question's order."""
    choice: MachineChoice
    """The recommended row."""
    advice: tuple[Advice, ...] = ()
    """Single changes that help."""
    assumptions: tuple[Assumption, ...] = ()
    """What was assumed."""
    warnings: tuple[str, ...] = ()
    """Warnings about the whole plan."""
    not_judged: tuple[str, ...] = ()
    """What could not be computed, and the option that would give it."""


def evaluate(question: PlanQuestion, judged: Callable[[int, int], None] = lambda done, total: None) -> Plan:
    """All rows, without their formulas: `explained` computes those of one row.

    `judged`: called after each row, with the number of rows so far and of all.

    Holds:   one row for each candidate, in order
    """
    shared = Rows(question)
    found = []
    for candidate in question.candidates:
        found.append(shared.row(candidate))
        judged(len(found), len(question.candidates))
    rows = tuple(found)
    choice = choose(rows, question.limits)
    base = choice.row or choice.nearest or _largest(rows)
    return Plan(
        question=question,
        rows=rows,
        choice=choice,
        advice=advise(question, rows, base) if base is not None else (),
        assumptions=tuple(dict.fromkeys((*question.workload.assumptions, *question.assumptions, *_of_memory(rows)))),
        warnings=tuple(
            dict.fromkeys((*question.warnings, *(text for row in rows if not row.refused for text in row.warnings)))
        ),
        not_judged=tuple(dict.fromkeys(_not_judged(question, rows))),
    )


def explained(plan: Plan, row: Row) -> list[Formula]:
    """Every formula behind one row of the plan, in the order of their use."""
    formulas: list[Formula] = []
    for candidate, other in zip(plan.question.candidates, plan.rows, strict=True):
        if other is row:
            Rows(plan.question).row(candidate, formulas=formulas)
    return formulas


def _of_memory(rows: tuple[Row, ...]) -> Iterator[Assumption]:
    """Assumptions of the verdicts on memory."""
    for row in rows:
        if not row.refused and row.memory.verdict is not Fit.NOT_JUDGED:
            yield from (Assumption(what=f"memory: {text}") for text in row.memory.assumed)


def _largest(rows: tuple[Row, ...]) -> Row | None:
    timed = [row for row in rows if row.step is not None and not row.refused]
    return max(timed, key=lambda row: row.machines.devices, default=None)


def _not_judged(question: PlanQuestion, rows: tuple[Row, ...]) -> Iterator[str]:
    yield from question.not_judged
    live = [row for row in rows if not row.refused]
    yield from _of_rows(live)
    if question.workload.batch is None:
        yield "throughput: samples of a device in a step (--batch)"
    if question.goal.steps is None and question.goal.epochs is None and question.goal.samples is None:
        yield "hours and cost: how far to train (--steps, or --epochs with --samples)"
    elif all(row.hours is None for row in live):
        yield "hours and cost: the length of an epoch (--samples and --batch)"
    if live and all(row.usd_per_hour is None for row in live):
        how = "--usd-per-hour" if any(row.machines.of_type for row in live) else "--instance, or --usd-per-hour"
        yield f"cost: the price of an hour {question.payment} ({how})"
    elif unpriced := list(dict.fromkeys(row.name for row in live if row.step is not None and row.usd_per_hour is None)):
        names = ", ".join(unpriced[:5]) + (f" and {len(unpriced) - 5} more" if len(unpriced) > 5 else "")
        yield f"cost of {names}: no price of an hour {question.payment} is known (--usd-per-hour)"
    if question.workload.loading_seconds is None and not question.measurements:
        yield "data loading: nothing measured of it (a trace or a measured step)"


def _of_rows(rows: list[Row]) -> Iterator[str]:
    """Why rows could not be judged: each reason once, with the devices concerned unless it concerns all."""
    devices: dict[str, list[str]] = {}
    names = [row.machines.device.name if row.machines.device is not None else "CPU" for row in rows]
    for row, name in zip(rows, names, strict=True):
        memory = (f"memory: {row.memory.missing}",) if row.memory.missing else ()
        for text in (*memory, *row.not_judged):
            known = devices.setdefault(text, [])
            if name not in known:
                known.append(name)
    for text, concerned in devices.items():
        what, _, why = text.partition(": ")
        yield text if len(concerned) == len(set(names)) else f"{what} on {', '.join(concerned)}: {why}"
