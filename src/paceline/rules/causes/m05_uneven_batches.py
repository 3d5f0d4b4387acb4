"""M05: a rank has no batches left and is done, while the others still exchange in their steps."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, early_ends, ended, log_command
from paceline.diagnosis.desync.batches import BatchCounts, RanOut, has_more, loading_of, peers_of, ran_out, whole_epochs
from paceline.diagnosis.desync.desync import call_text
from paceline.diagnosis.desync.left_loop import LeftLoop, left_loops
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "uneven number of batches"
PAGE = """\
Uneven number of batches

What it means: The DataLoader of one rank gave fewer batches than the others: the shards are unequal, drop_last is
  missing, or the sampler is not distributed. This rank ended with 0, or went on to the code after the training loop.
  The other ranks wait in a step that this rank never makes.
Why it matters: The rank that ends well is the one to look at. The ranks that fail with "Connection closed by peer"
  are not at fault.
Deciding evidence: The rank's loader had no more batches while the other ranks took further ones. Either the rank's
  program ran to its end, or the rank has called a collective after its training loop (a barrier, the sum of an
  evaluation, a save) while the others are in a step.
Not to be confused with: C01 (the exit code is not 0); M07 (the rank took batches without making steps); M11 (the rank
  stopped before its loader was used up); M06 (the rank is in its loop, or all ranks are at the end of an epoch, and
  this rank makes a call that the others leave out).
What to do: Use DistributedSampler with drop_last=True, shards of equal size, or `with
  torch.distributed.algorithms.Join([model])`. In TensorFlow: `dataset.repeat()` with `steps_per_epoch`.
How to inject it: examples/broken/m05_uneven.py, examples/broken/m05_barrier.py, examples/broken/m05_evaluates.py,
  examples/broken/m05_epochs.py
Source: torch.distributed.algorithms.Join.
"""

_EVEN = (
    "give every rank the same number of batches: DistributedSampler(..., drop_last=True), or wrap the loop in Join([model]); "
    "in TensorFlow, dataset.repeat() with steps_per_epoch"
)


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in early_ends(case):
        own, out = loading_of(case, exit.rank), ran_out(case, exit.rank)
        record = case.ranks.get(exit.rank)
        used_up = out is not None or own is None or whole_epochs(own)
        if record is None or record.left_by in (0, 2) or not used_up or (own is not None and own.skipped):
            continue
        yield _ended(case, exit, own, out)
    for left in left_loops(case):
        # A rank with batches left stopped by itself: M11.
        if left.own is None or left.has_used_up_its_batches:
            yield _behind_its_loop(left)


def _ended(case: Case, exit: RankExit, own: BatchCounts | None, out: RanOut | None) -> CauseFinding:
    steps = case.ranks[exit.rank].step_count
    others = peers_of(case, exit.rank)
    longer = own is not None and any(peer.batches > own.batches for peer in others)
    with_more = [rank for rank in case.ranks if rank != exit.rank and out is not None and has_more(case, rank, out)]
    sure = Confidence.HIGH if longer or with_more else Confidence.LIKELY if own or out else Confidence.UNCLEAR
    return crash(
        case,
        [exit],
        code="M05",
        title=TITLE,
        level=Level.DIVERGENCE,
        confidence=sure,
        saw=(
            f"{ended(exit)} after {steps} steps, while the others still exchange",
            *_batches(own, out),
            *(f"the loader of rank {peer.rank} has {peer.batches}" for peer in others[:2] if longer),
            f"{named_ranks(with_more)} took more batches" if with_more and not longer else "",
        ),
        next=(
            _EVEN,
            log_command(case, exit.rank),
        ),
    )


def _batches(own: BatchCounts | None, out: RanOut | None) -> Iterator[str]:
    if own is not None and whole_epochs(own):
        yield f"its loader has {own.batches} batches, and it took them all"
    elif out is not None:
        yield f"its loader had no more after {out.batches} batches"


def _behind_its_loop(left: LeftLoop) -> CauseFinding:
    one = len(left.in_a_step) == 1
    return CauseFinding(
        code="M05",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=(left.rank,),
        confidence=Confidence.HIGH if left.has_fewer_batches or left.out else Confidence.LIKELY,
        since_step=left.steps,
        saw=(
            f"rank {left.rank} is done with its loop"
            + ("" if left.steps is None else f" after {left.steps} steps")
            + f", and has called {call_text(left.call)}",
            f"{named_ranks(left.in_a_step)} {'is' if one else 'are'} still in a step",
            *_shorter_loader(left),
        ),
        ruled_out=("a call that the others leave out (M06): they are still in their loops",),
        next=(
            _EVEN,
            *(
                ()
                if left.own is not None or left.out is not None
                else ("if the rank left its loop by a decision of its own, share the decision",)
            ),
        ),
    )


def _shorter_loader(left: LeftLoop) -> Iterator[str]:
    if left.own is not None and (left.has_fewer_batches or left.out is None):
        yield f"its loader has {left.own.batches} batches, the longest of the others {left.longest}"
    elif left.out is not None:
        yield f"its loader had no more after {left.out.batches} batches, and those in a step have taken more"


RULE = Cause(
    code="M05",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("M01", "M02", "M03", "M04", "M06", "C01", "C05", "N10"),
    sure_by=(Ground.CALLS, Ground.EXIT, Ground.TIMES),
)
