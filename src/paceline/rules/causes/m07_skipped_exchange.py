"""M07: a rank took a batch but skipped the step, and with it the exchange, that the others made."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, GroupCounters, Heartbeat, Level
from paceline.diagnosis.crash.exits import early_ends, log_command, steps_of, victims
from paceline.diagnosis.desync.batches import loading_of, whole_epochs
from paceline.diagnosis.desync.left_loop import is_behind_its_loop
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

_LATE = "is late"
TITLE = "a rank skipped a step of its own accord"
PAGE = """\
A rank skipped a step of its own accord

What it means: One rank left out a backward pass for a reason of its own: a NaN loss, an empty batch, a `continue`. Or
  it ran the backward pass inside `no_sync()` while the other ranks did not. From there on its gradients are averaged
  with those of another step of the others. At the end the others wait for an exchange that never comes.
Why it matters: Since then, gradients of different steps were averaged, without an error.
Deciding evidence: The rank has more finished steps than the ranks that wait for it, fewer collectives at the same
  number of steps, or more batches taken for the same number of steps.
Not to be confused with: M05, where the rank had fewer batches; M08, where only some gradients are missing.
What to do: Decide on all ranks together: all_reduce a flag (MAX) and skip on every rank, or exchange zeros with `loss
  = 0 * sum(p.sum() for p in parameters)`.
How to inject it: examples/broken/m07_skipped_step.py, examples/broken/m07_no_sync.py
Source: torch DistributedDataParallel, "uneven inputs".
"""


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in early_ends(case):
        if (found := _finding(case, exit.rank, "ended with 0")) is not None:
            yield found
    done = dict.fromkeys(_alone_behind_their_loops(case))
    for rank in done:
        if (found := _finding(case, rank, "is done with its loop")) is not None:
            yield found
    still = case.stall
    for rank in still.late if still is not None else ():
        if rank in done or any(exit.rank == rank for exit in case.exits):
            continue
        if rank in case.ranks and case.heartbeats.get(rank):
            if (found := _finding(case, rank, _LATE)) is not None:
                yield found


def _alone_behind_their_loops(case: Case) -> Iterator[int]:
    """Ranks that wait in a call behind their loops, beside ranks that are in a step."""
    for divergence in case.divergences:
        behind = [rank for rank in divergence.calls if is_behind_its_loop(case, rank)]
        if len(behind) < len(divergence.calls):
            yield from behind


def _finding(case: Case, rank: int, how: str) -> CauseFinding | None:
    is_done = how != _LATE
    others = [other for other in case.ranks if other != rank]
    counts = [count for other in others if (count := steps_of(case, other)) is not None]
    steps = steps_of(case, rank)
    if steps is None or not counts:
        return None
    ahead = steps - max(counts)
    behind = _collectives_behind(case, rank, others)
    own = loading_of(case, rank)
    skipped = own.skipped if own is not None and is_done else 0
    if not ((ahead > 0 and (is_done or behind)) or skipped):
        return None
    sure = Confidence.HIGH if ahead > 0 else Confidence.LIKELY
    return CauseFinding(
        code="M07",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=(rank,),
        confidence=sure,
        saw=tuple(
            line
            for line in (
                f"rank {rank} {how} after {steps} steps; the others have made {max(counts)} and wait for one more",
                f"it is {behind} collectives behind them" if behind else "",
                f"it took {own.taken} batches for {own.steps} steps: {skipped} more than the others"
                if own and skipped
                else "",
            )
            if line
        ),
        ruled_out=(
            *(("fewer batches (M05): it took as many as its loader has",) if own and whole_epochs(own) else ()),
            *victims(case, (rank,)),
        ),
        next=(
            f"look for a `continue`, an `if` around backward() or a no_sync() that {named_ranks([rank])} alone can take (NaN, empty batch)",
            "decide it on every rank: all_reduce the flag with MAX before",
            log_command(case, rank),
        ),
    )


def _collectives_behind(case: Case, rank: int, others: list[int]) -> int:
    """Number of collectives of its first group that a rank is behind the others; 0 also if they could not be counted."""
    heartbeat = case.heartbeats.get(rank)
    mine = (
        {(group.recorder, group.name): group.enqueued for group in _groups(heartbeat)} if heartbeat is not None else {}
    )
    theirs = [
        group.enqueued - mine[group.recorder, group.name]
        for other in others
        if (beside := case.heartbeats.get(other)) is not None
        for group in _groups(beside)
        if (group.recorder, group.name) in mine
    ]
    return max(0, min(theirs, default=0))


def _groups(heartbeat: Heartbeat) -> tuple[GroupCounters, ...]:
    return (*(heartbeat.groups or ()), *heartbeat.exchanges)


RULE = Cause(
    code="M07",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("M05", "M06", "M11", "N01"),
    sure_by=(Ground.CALLS, Ground.MARKS, Ground.EXIT, Ground.SNAPSHOT),
)
