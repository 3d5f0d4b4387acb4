"""Waits for data that come again, as at the beginning of each epoch, and that are most of what the steps wait for data."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from paceline.facts import Step

# Fewer may be chance.
_LEAST_WAITS = 3
# A wait that is longer than so many of the usual ones, and than this; in not more than one of so many steps.
_LONGER_THAN_USUAL, _LEAST_NS, _RARER_THAN = 10, 100_000_000, 5
# How far the number of steps between two waits may be from the median one.
_UNEVEN = 0.1


@dataclass(frozen=True, slots=True)
class RecurringWait:
    """A wait that comes again."""

    count: int
    """How often it was seen."""
    every_steps: int
    """After so many steps."""
    seconds: float
    """How long it is, the median one."""
    usual_seconds: float
    """How long the median step waits."""
    fraction: float
    """Its share of the time in steps."""


def recurring_wait(steps: Sequence[Step]) -> RecurringWait | None:
    """The wait for data that comes again after about as many steps each time; None: there is none.

    Holds:   steps whose waits come by chance have none
    """
    whole = sum(step.duration_ns for step in steps)
    usual = median(step.data_ns for step in steps) if steps else 0.0
    long = [step for step in steps if step.data_ns > max(_LONGER_THAN_USUAL * usual, _LEAST_NS)]
    if len(long) < _LEAST_WAITS or len(long) * _RARER_THAN > len(steps):
        return None
    gaps = [after.index - before.index for before, after in pairwise(long)]
    every = median(gaps)
    if any(abs(gap - every) > max(_UNEVEN * every, 1) for gap in gaps):
        return None
    waits = [step.data_ns for step in long]
    if 2 * sum(waits) < sum(step.data_ns for step in steps):
        return None
    return RecurringWait(len(long), round(every), median(waits) / 1e9, usual / 1e9, sum(waits) / whole)
