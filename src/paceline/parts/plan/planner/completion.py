"""When a job will end: steps to its goal, hours, and the probability of ending within a limit."""

import math

from paceline.parts.plan.planner.answer import Formula, StepTime
from paceline.parts.plan.planner.question import Expenses, Goal
from paceline.parts.plan.planner.workload import Workload

HOUR = 3600.0
# An interval covers 80 % of cases: its ends are the 10 % and 90 % quantiles, so many standard deviations of a normal from its middle.
Z_OF_INTERVAL = 1.2815515655446004


def steps_of(goal: Goal, workload: Workload, devices: int, formulas: list[Formula] | None = None) -> int | None:
    """Optimizer steps to the goal; None if no goal is given or the length of an epoch is unknown.

    Holds:   stated steps are taken as they are, whatever the number of devices
    """
    if goal.steps is not None:
        return goal.steps
    samples = goal.samples if goal.samples is not None else workload.samples_per_epoch
    if samples is None or workload.batch is None or (goal.epochs is None and goal.samples is None):
        return None
    epochs = 1.0 if goal.epochs is None else goal.epochs
    a_step = workload.batch * workload.microbatches * devices
    steps = math.ceil(epochs * math.ceil(samples / a_step))
    if formulas is not None:
        formulas.append(
            Formula(
                name="steps",
                text="epochs * ceil(samples / (batch * microbatches * devices))",
                values={
                    "epochs": epochs,
                    "samples": samples,
                    "batch": workload.batch,
                    "microbatches": workload.microbatches,
                    "devices": devices,
                },
                result=float(steps),
                unit="steps",
                source="a last, smaller batch counts as a step",
            )
        )
    return steps


def fixed_seconds(goal: Goal, expenses: Expenses) -> float:
    """Time besides the steps; samples without a number of epochs are one epoch."""
    one = 1.0 if goal.steps is None and goal.samples is not None else 0.0
    return expenses.startup_seconds + expenses.epoch_seconds * (one if goal.epochs is None else goal.epochs)


def hours_of(
    steps: int, step: StepTime, besides_seconds: float, formulas: list[Formula] | None = None
) -> tuple[float, float, float]:
    """Expected hours and the two ends of their interval.

    Units:   seconds in, hours out
    Holds:   low <= expected <= high; what is besides the steps is in all three
    """
    expected, low, high = (
        (besides_seconds + steps * seconds) / HOUR for seconds in (step.seconds, step.low_seconds, step.high_seconds)
    )
    if formulas is not None:
        formulas.append(
            Formula(
                name="hours",
                text="(besides_seconds + steps * step_seconds) / 3600",
                values={
                    "besides_seconds": besides_seconds,
                    "steps": steps,
                    "step_seconds": step.seconds,
                    "low_hours": low,
                    "high_hours": high,
                },
                result=expected,
                unit="hours",
                source="the ends of the interval with the ends of the step's; start-up as assumed or given",
            )
        )
    return expected, low, high


def within_probability(
    limit_seconds: float,
    steps: int,
    step: StepTime,
    besides_seconds: float,
    formulas: list[Formula] | None = None,
) -> float:
    """Probability that the job ends within a limit, from the step's interval alone: each half of it is half of a lognormal distribution.

    Holds:   0.5 where the limit is the expected time, 0.9 at the interval's high end, 0.1 at its low end; never falls as the limit grows
    """
    room = (limit_seconds - besides_seconds) / max(steps, 1)
    if room <= 0:
        probability = 0.0
    elif room == step.seconds:
        probability = 0.5
    else:
        end = step.high_seconds if room > step.seconds else step.low_seconds
        spread = abs(math.log(end / step.seconds)) / Z_OF_INTERVAL if end > 0 else math.inf
        away = math.log(room / step.seconds)
        probability = _normal(away / spread) if spread else float(away > 0)
    if formulas is not None:
        formulas.append(
            Formula(
                name="within the limit",
                text="normal(z * ln(room / step) / |ln(end / step)|), room = (limit - besides) / steps",
                values={
                    "z": Z_OF_INTERVAL,
                    "limit_seconds": limit_seconds,
                    "room_seconds": room,
                    "step_seconds": step.seconds,
                    "low_seconds": step.low_seconds,
                    "high_seconds": step.high_seconds,
                },
                result=probability,
                unit="probability",
                source="the interval's ends taken as the 10 % and 90 % quantiles of a lognormal in two halves",
            )
        )
    return probability


def _normal(away: float) -> float:
    return 0.5 * (1.0 + math.erf(away / math.sqrt(2.0)))
