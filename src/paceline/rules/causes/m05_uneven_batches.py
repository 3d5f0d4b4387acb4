"""M05: a rank has run out of batches and is done, while the others still exchange in their steps."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.disagreement import call_text
from paceline.diagnosis.ends import crash, early_ends, ended, log_command
from paceline.diagnosis.left_loop import LeftLoop, left_loops
from paceline.diagnosis.loading import Loading, loading_of, peers_of, whole_epochs
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence
from paceline.recording.rank_sets import named_ranks

TITLE = "uneven number of batches"
PAGE = """\
Uneven number of batches

What it means: One rank's DataLoader gave fewer batches than the others': unequal shards, no drop_last, a sampler that is not
  distributed. It ended with 0, or went on to what comes after the training, and the others wait in a step that it never makes.
Why it matters: The rank that ends well is the one to look at; those that fail with "Connection closed by peer" are right.
Deciding evidence: A rank whose program ran to its end after all batches of its loader, with as many steps as batches, while the
  loaders of the others are longer; or that has come to a call behind its training loop (a barrier, the sum of an evaluation)
  while they are in a step.
Not to be confused with: C01 (a code that is not 0), M07 (it took batches without making steps), M11 (it stopped in the middle of its
  loader), M06 (it is in its loop, or all are at the end of an epoch, and it makes a call that the others leave out).
What to do: DistributedSampler with drop_last=True, shards of equal size, or `with torch.distributed.algorithms.Join([model])`.
How to inject it: examples/broken/m05_uneven.py, examples/broken/m05_barrier.py, examples/broken/m05_evaluates.py
Source: torch.distributed.algorithms.Join.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in early_ends(case):
        own = loading_of(case, exit.rank)
        record = case.ranks.get(exit.rank)
        if record is None or record.left_by in (0, 2) or (own is not None and (own.skipped or not whole_epochs(own))):
            continue
        yield _ended(case, exit, own)
    for left in left_loops(case):
        # With batches left it stopped by itself: M11.
        if left.own is None or left.has_used_up_its_batches:
            yield _behind_its_loop(left)


def _ended(case: Case, exit: RankExit, own: Loading | None) -> CauseFinding:
    steps = case.ranks[exit.rank].step_count
    others = peers_of(case, exit.rank)
    longer = own is not None and any(peer.batches > own.batches for peer in others)
    sure = Confidence.HIGH if longer else Confidence.LIKELY if own is not None else Confidence.UNCLEAR
    return crash(
        case,
        [exit],
        code="M05",
        title=TITLE,
        level=Level.DIVERGENCE,
        confidence=sure,
        saw=(
            f"{ended(exit)} after {steps} steps, while the others still exchange",
            f"its loader has {own.batches} batches, and it took them all" if own is not None else "",
            *(f"the loader of rank {peer.rank} has {peer.batches}" for peer in others[:2] if longer),
        ),
        next=(
            "give every rank as many batches: DistributedSampler(..., drop_last=True), or wrap the loop in Join([model])",
            log_command(case, exit.rank),
        ),
    )


def _behind_its_loop(left: LeftLoop) -> CauseFinding:
    one = len(left.in_a_step) == 1
    return CauseFinding(
        code="M05",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=(left.rank,),
        confidence=Confidence.HIGH if left.has_fewer_batches else Confidence.LIKELY,
        since_step=left.steps,
        saw=(
            f"rank {left.rank} is done with its loop after {left.steps} steps, and has called {call_text(left.call)}",
            f"{named_ranks(left.in_a_step)} {'is' if one else 'are'} still in a step",
            *(
                (f"its loader has {left.own.batches} batches, the longest of the others {left.longest}",)
                if left.own is not None
                else ()
            ),
        ),
        ruled_out=("a call that the others leave out (M06): they have not come out of their loops",),
        next=(
            "give every rank as many batches: DistributedSampler(..., drop_last=True), or wrap the loop in Join([model])",
            *(
                ()
                if left.own is not None
                else ("if the rank left its loop by a decision of its own, share the decision",)
            ),
        ),
    )


RULE = Cause(
    code="M05", title=TITLE, page=PAGE, find=find, beats=("M01", "M02", "M03", "M04", "M06", "C01", "C05", "N10")
)
