"""The time of an ordinary step of a run. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from paceline.facts import RankRecord

# The first step builds kernels, caches and allocators; DDP orders its buckets anew after it and reads its own timers in the third.
WARMUP_STEPS = 5
LEAST_STEPS = 3
_NS = 1e9


@dataclass(frozen=True, slots=True)
class SteadyStep:
    """Duration of a step once the job is warm."""

    seconds: float
    """The duration."""
    count: int | None
    """Steps behind the median; None: it is a mean, not a median of single steps."""


def steady_step(records: Iterable[RankRecord]) -> SteadyStep | None:
    """Median over the ranks of the newest attempt with steps of their steady steps; None if no step was seen.

    Holds:   the median over the ranks of each rank's median; `count` is that of the rank with the fewest steps
    """
    known = [(record.attempt, step) for record in records if (step := steady_step_of(record)) is not None]
    newest = max((attempt for attempt, _ in known), default=0)
    steps = [step for attempt, step in known if attempt == newest]
    if not steps:
        return None
    counts = [step.count for step in steps if step.count is not None]
    return SteadyStep(median(step.seconds for step in steps), min(counts) if len(counts) == len(steps) else None)


def steady_step_of(record: RankRecord) -> SteadyStep | None:
    """One rank's steady step: without its warm-up if the recording has single steps, without its first step if it has totals only.

    The reasons for long first steps (compilation, kernels, caches, allocators) do not apply to the others.
    """
    steps = _steady(record.step_lengths or [(step.index, step.duration_ns) for step in record.steps])
    if steps:
        return SteadyStep(median(steps) / _NS, len(steps))
    if not record.step_count:
        return None
    if record.step_count > 1 and record.first_step_ns and record.last_step_ns:
        return SteadyStep((record.last_step_ns - record.first_step_ns) / _NS / (record.step_count - 1), None)
    return SteadyStep(record.step_seconds / record.step_count, None) if record.step_seconds else None


def _steady(steps: Sequence[tuple[int, int]]) -> list[int]:
    """Durations of the steps after the warm-up; in a short run of those after the first. `steps`: (index, ns)."""
    for warmup, least in ((WARMUP_STEPS, LEAST_STEPS), (1, 1)):
        found = [length_ns for index, length_ns in steps if index > warmup and length_ns > 0]
        if len(found) >= least:
            return found
    return []
