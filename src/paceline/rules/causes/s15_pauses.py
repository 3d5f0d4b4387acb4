"""S15: single steps take many times their usual length, on any rank."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from paceline.diagnosis.case import Case, Level, StepTiming
from paceline.diagnosis.slow.noise import chance_of_count
from paceline.diagnosis.slow.slowdown import cost_text, is_crowded, is_worth, steady_timing
from paceline.diagnosis.slow.step_timing import WORTH_FRACTION
from paceline.facts import RankRecord, Step
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "GC or allocator pauses"
MANY = 3
_CHANCE = 0.01
LEAST_STEPS = 100
PAGE = """\
Single steps pause now and then, on one rank or another

What it means: A rank pauses in some steps, without a rhythm. Python's garbage collector goes through a large heap, or
  an allocator gives memory back.
Why it matters: The pause of one rank stops all ranks. With many ranks, some rank pauses in every step.
Deciding evidence: In the ranks' own step times, a few steps take several times the median outside data loading,
  communication and checkpoints. They fall on different ranks at different steps and together cost at least a tenth. A
  running job does not report this by itself, because single steps are only in the recording; `paceline why` reads
  them from there, also while the job runs.
Not to be confused with: S13 (one rank, regularly); S14 (every step); an evaluation (all ranks at once).
What to do: Call gc.freeze() after the start and gc.disable(), and call gc.collect() every n steps on all ranks
  together. Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. Preview: judged on made-up evidence.
How to inject it: gc.collect() on a heap of many objects, on a random rank.
Source: Python documentation, gc; OSDI'25, "Understanding Stragglers in Large Model Training": garbage collection.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len(timing.ranks) < 2:
        return
    records = [record for record in case.ranks.values() if len(record.steps) >= LEAST_STEPS]
    if len(records) < 2:
        raise Unknown(f"{LEAST_STEPS} single steps of two ranks")
    pauses = _without_the_others({record.rank: _pauses(record.steps) for record in records})
    together = {step for found in pauses.values() for step in found}
    # What one rank has alone is what it does, and not when it collects.
    ranks = [rank for rank, found in pauses.items() if found]
    if len(ranks) < 2 or len(together) < 3 or any(len(set(found)) > 0.8 * len(together) for found in pauses.values()):
        return
    longest = [max(found.get(step, 0.0) for found in pauses.values()) for step in together]
    cost = sum(longest) / min(_steps(records))
    # Evaluations, saves and downloads are few and long: one of them has most of the cost.
    if max(longest) > sum(longest) / 2:
        return
    if not is_worth(cost, timing) or not _come_often(len(together), cost, timing):
        return
    if is_crowded(timing, (host.host for host in timing.hosts)):
        raise Unknown("whether the ranks pause by themselves or wait for a CPU")
    yield CauseFinding(
        code="S15",
        title=TITLE,
        level=Level.SLOW,
        confidence=Confidence.LIKELY,
        saw=(f"{len(together)} single steps paused, on {len(ranks)} ranks, never all at once", cost_text(cost, timing)),
        next=(
            "call gc.freeze() and gc.disable() after the start, then gc.collect() on all ranks every few hundred steps",
        ),
    )


def _come_often(count: int, cost: float, timing: StepTiming) -> bool:
    """Whether so many pauses would be rare if they cost only half a tenth of the step in the long run."""
    least = WORTH_FRACTION * timing.step_seconds / 2
    return chance_of_count(count, count * least / cost) < _CHANCE


def _without_the_others(pauses: Mapping[int, Mapping[int, float]]) -> dict[int, dict[int, float]]:
    """Without the steps in which half of the ranks pause or more: that is an evaluation, or shows the pause of one rank in all."""
    counts = Counter(step for found in pauses.values() for step in found)
    shared = {step for step, count in counts.items() if count >= max(2, len(pauses) / 2)}
    return {
        rank: {step: seconds for step, seconds in found.items() if step not in shared} for rank, found in pauses.items()
    }


def _pauses(steps: Sequence[Step]) -> dict[int, float]:
    own = {s.index: (s.duration_ns - s.data_ns - s.communication_ns - s.checkpoint_ns) / 1e9 for s in steps[1:]}
    usual = median(own.values())
    return {index: seconds - usual for index, seconds in own.items() if seconds > MANY * usual}


def _steps(records: Sequence[RankRecord]) -> list[int]:
    return [len(record.steps) for record in records]


RULE = Cause(code="S15", title=TITLE, page=PAGE, find=find, preview=True, sure_by=(Ground.TIMES,))
