"""S13: one rank, mostly rank 0, does something more in every n-th step."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, RankTiming, StepTiming
from paceline.diagnosis.slow.slowdown import cost_text, excess, is_worth, milliseconds, steady_timing
from paceline.diagnosis.stacks import frames_of, site_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "rank-0 extra work"
# One save in the window says nothing about the hours around it.
LEAST_SAVES = 3
_WORK = {
    "save": "saving",
    "log": "logging",
    "write": "writing",
    "print": "printing",
    "eval": "evaluation",
    "valid": "evaluation",
}
PAGE = """\
One rank does something more than the others in every n-th step

What it means: One rank, mostly rank 0, logs, saves or evaluates every n steps. The other ranks wait for it in the
  next collective.
Why it matters: Work that looks cheap on one rank costs all of them: one second of rank 0 is one second of 512 ranks.
Deciding evidence: The lateness of that rank is regular, more than random pauses would be: it is on time in most steps
  and late once in every n steps. Or this rank alone has spent time in torch.save, at least three times. Its mean
  lateness is at least a tenth of the step.
Not to be confused with: S01 (late in every step); S14 (other ranks in turn); S15 (one rank or another, without a
  rhythm); N04 (one save that lasts longer than the hang threshold).
What to do: Log less often, or without `.item()` in each step. Save asynchronously
  (torch.distributed.checkpoint.async_save) or in turns. Let all ranks share the evaluation.
How to inject it: `examples/broken/s13_extra_work.py`: rank 0 sleeps in every 10th step.
Source: torch.distributed.checkpoint documentation, async_save.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len(timing.ranks) < 2:
        return
    lags_known = all(rank.late_seconds is not None for rank in timing.ranks)
    found = False
    late, saves = excess(timing, lambda one: one.late_seconds), excess(timing, lambda one: one.checkpoint_seconds)
    for rank in timing.ranks:
        if rank.periodic is None and (rank.checkpoint_count or 0) < LEAST_SAVES:
            continue
        gain = (saves if rank.periodic is None else late).get(rank.rank)
        if is_worth(gain, timing):
            found = True
            yield _finding(case, timing, rank, gain or 0.0, saves.get(rank.rank, 0.0))
    if not found and not lags_known:
        raise Unknown("how late each rank is in each step (the flight recorders)")


def _finding(case: Case, timing: StepTiming, rank: RankTiming, gain: float, saves: float) -> CauseFinding:
    saw = [cost_text(gain, timing)]
    if rank.periodic is not None:
        saw.insert(
            0,
            f"rank {rank.rank} is late once in {rank.periodic} steps, by {milliseconds(gain * rank.periodic)}, and on time in between",
        )
    if saves >= 0.5 * gain:
        saw.insert(0, f"rank {rank.rank} alone saves checkpoints, {milliseconds(saves)} of a mean step")
    work = _seen(case, rank.rank)
    if work:
        saw.append(f"rank {rank.rank} was at {work} when it was looked at")
    return CauseFinding(
        code="S13",
        title=TITLE,
        level=Level.SLOW,
        ranks=(rank.rank,),
        hosts=(rank.host,),
        confidence=Confidence.HIGH,
        since_step=rank.slow_since_step,
        saw=tuple(saw),
        ruled_out=("S01 straggler: it is on time in the steps between",) if rank.periodic is not None else (),
        next=(
            "save asynchronously: torch.distributed.checkpoint.async_save, or less often"
            if saves >= 0.5 * gain
            else f"find what rank {rank.rank} does every {rank.periodic} steps (logging, saving, evaluation); "
            "do it less often, or on all ranks",
            *((f"see it while it happens: paceline stack {case.run.id}",) if case.lasts else ()),
        ),
    )


def _seen(case: Case, rank: int) -> str:
    snapshot = case.snapshots.get(rank)
    for frame in frames_of(snapshot) if snapshot is not None else ():
        word = next((name for part, name in _WORK.items() if frame.users and part in frame.function.lower()), None)
        if word is not None:
            return f"{site_of(frame)} ({word})"
    return ""


RULE = Cause(
    code="S13", title=TITLE, page=PAGE, find=find, beats=("S01", "S03", "S04", "S14", "S15"), sure_by=(Ground.TIMES,)
)
