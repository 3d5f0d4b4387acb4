"""S05: steps wait for their data."""

from collections.abc import Iterator, Mapping
from statistics import median

from paceline.diagnosis.case import Case, Level, RankTiming, StepTiming
from paceline.diagnosis.slow.recurring_waits import RecurringWait, recurring_wait
from paceline.diagnosis.slow.slowdown import (
    cost_text,
    is_beyond_noise,
    is_worth,
    late_ranks,
    milliseconds,
    steady_timing,
)
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.recording.rank_sets import named_ranks

TITLE = "data-loading bound"
PAGE = """\
Steps wait for the DataLoader

What it means: A rank spends at least a tenth of its step inside the DataLoader's `next`: batches arrive more slowly
  than they are used. If one rank does so, the other ranks wait for it. If all do, the whole job waits for data.
Why it matters: Nothing overlaps with the time in `next`. A GPU is idle meanwhile.
Deciding evidence: The rank measures the time inside `next` in each step. paceline compares it with the step, and a
  single rank with the others. The time must be long in most of the seconds of the window, so one slow batch does not
  count; or a long wait comes again after the same number of steps, three times at least, as at the beginning of each
  epoch, and these waits together take a tenth of the time and most of the time in `next`.
Not to be confused with: S01 (the rank is late in its own code, not in `next`); N03 (a loader worker hangs); S18 (the
  storage is slow: tasks wait for IO); S09.
What to do: Raise `num_workers` and `prefetch_factor`, and set `persistent_workers=True`. Move work from `__getitem__`
  into a preparation that runs once. Keep the data on a local disk or in memory. With `num_workers=0` the loader runs
  inside the step. Where each epoch begins with a wait, its iterator opens or lists the data set anew: do that once, in
  `__init__`, or let workers do it meanwhile.
How to inject it: `examples/broken/s05_loader.py`: a slow `__getitem__` on one rank, or with `--rank -1` on all.
Source: torch.utils.data documentation, "Multi-process data loading".
"""


_COSTLY = 0.1


def find(case: Case) -> Iterator[CauseFinding]:
    recurring = {
        rank: wait for rank, record in case.ranks.items() if (wait := recurring_wait(record.steps)) is not None
    }
    costly = {rank: wait for rank, wait in recurring.items() if wait.fraction >= _COSTLY}
    if costly:
        yield _of_each_epoch(case, costly)
        return
    yield from _of_each_step(case)


def _of_each_epoch(case: Case, waits: Mapping[int, RecurringWait]) -> CauseFinding:
    ranks = tuple(sorted(waits))
    wait = max(waits.values(), key=lambda one: one.fraction)
    who = "every rank" if len(ranks) == len(case.ranks) else named_ranks(ranks)
    return CauseFinding(
        code="S05",
        title=TITLE,
        level=Level.SLOW,
        ranks=ranks,
        hosts=tuple(sorted({case.ranks[rank].host for rank in ranks})),
        saw=(
            f"{who} waits {wait.seconds:.1f} s inside the DataLoader every {wait.every_steps} steps, as at the beginning of an epoch: "
            f"{wait.count} times, {wait.fraction:.0%} of the time in steps",
            f"the median step waits {milliseconds(wait.usual_seconds)}",
        ),
        ruled_out=("S01 straggler: the time is inside the DataLoader's next",),
        next=(
            "open or list the data set once, in its __init__, and not at the beginning of each epoch",
            "or DataLoader(..., num_workers=2, persistent_workers=True), so that it is ready before the epoch begins",
        ),
    )


def _of_each_step(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    known = [rank for rank in timing.ranks if rank.data_seconds is not None]
    if not known:
        raise Unknown(
            "the time in the DataLoader (no DataLoader was seen in the script, or paceline's instrument in the rank failed)"
        )
    waiting = [rank for rank in known if is_worth(rank.data_seconds, timing)]
    if any(rank.data is None for rank in waiting):
        raise Unknown("whether the time in the DataLoader lasts (8 s of steady steps)")
    # A single slow batch, as at the end of an epoch, raises the mean but is no steady loss.
    slow = [rank for rank in waiting if is_beyond_noise(rank.data, timing)]
    if not slow:
        return
    others = [rank for rank in known if rank not in slow]
    # If all ranks wait for data, they wait at the same time. One rank alone delays the others by its extra wait.
    waits = [rank.data_seconds or 0.0 for rank in slow]
    gain = max(waits) - max(rank.data_seconds or 0.0 for rank in others) if others else median(waits)
    if not is_worth(gain, timing):
        return
    numbers = tuple(rank.rank for rank in slow)
    everyone = len(slow) == len(timing.ranks)
    yield CauseFinding(
        code="S05",
        title=TITLE,
        level=Level.SLOW,
        ranks=numbers,
        hosts=tuple(sorted({rank.host for rank in slow})),
        confidence=Confidence.HIGH
        if all(is_worth(rank.data.low, timing) for rank in slow if rank.data)
        else Confidence.LIKELY,
        since_step=_since(timing, slow),
        saw=tuple(_saw(case, timing, slow, everyone, gain)),
        ruled_out=("S01 straggler: the time is inside the DataLoader's next",),
        next=tuple(_next(case, slow)),
    )


def _since(timing: StepTiming, slow: list[RankTiming]) -> int | None:
    if len(slow) == len(timing.ranks):
        return None
    return min((rank.slow_since_step for rank in slow if rank.slow_since_step is not None), default=None)


def _saw(case: Case, timing: StepTiming, slow: list[RankTiming], everyone: bool, gain: float) -> Iterator[str]:
    seconds = max(rank.data_seconds or 0.0 for rank in slow)
    who = "every rank" if everyone else named_ranks([rank.rank for rank in slow])
    yield f"{who} waits {milliseconds(seconds)} of each step of {milliseconds(timing.step_seconds)} inside the DataLoader"
    yield cost_text(gain, timing)
    if not everyone and len(timing.ranks) > 1:
        late = _late(timing)
        if late & {rank.rank for rank in slow}:
            yield f"the others wait for {who} in their collectives"
    for rank in slow[:1]:
        snapshot = case.snapshots.get(rank.rank)
        workers = _workers(snapshot)
        if workers:
            yield f"rank {rank.rank} has {workers}"


def _late(timing: StepTiming) -> set[int]:
    try:
        late = late_ranks(timing)
    except Unknown:
        return set()
    return set(late.numbers) if late is not None else set()


def _workers(snapshot: RankSnapshot | None) -> str:
    if snapshot is None or snapshot.children is None:
        return ""
    loaders = [child for child in snapshot.children if child.role == "loader"]
    if not loaders:
        return "no loader workers: the batches are made inside the step"
    used = sum(child.cpu_fraction or 0.0 for child in loaders)
    waiting = sum(child.state == "D" for child in loaders)
    return f"{len(loaders)} loader workers that use {used:.1f} cores" + (
        f"; {waiting} of them wait for a disk" if waiting else ""
    )


def _next(case: Case, slow: list[RankTiming]) -> Iterator[str]:
    snapshot = case.snapshots.get(slow[0].rank)
    if (
        snapshot is not None
        and snapshot.children is not None
        and not any(child.role == "loader" for child in snapshot.children)
    ):
        yield "DataLoader(..., num_workers=2, persistent_workers=True), so that batches are made beside the step"
    else:
        yield "raise num_workers and prefetch_factor of the DataLoader, or make __getitem__ cheaper"
    if case.lasts:
        yield f"see where its workers are: paceline stack {case.run.id}"


RULE = Cause(code="S05", title=TITLE, page=PAGE, find=find, beats=("S01", "S14", "S16"), sure_by=(Ground.TIMES,))
