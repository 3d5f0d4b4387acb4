"""M11: a rank left its training loop before its batches were used up, and the others do not know."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, early_ends, ended, log_command
from paceline.diagnosis.desync.batches import BatchCounts, loading_of, ran_out, whole_epochs
from paceline.diagnosis.desync.desync import call_text
from paceline.diagnosis.desync.left_loop import LeftLoop, left_loops
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "a rank stopped by a decision of its own"
PAGE = """\
A rank stopped by a decision of its own

What it means: A rank left its training loop by early stopping, patience, a limit of time or steps, or another `break`
  that depends on what only this rank has seen. Its program ran to its end. The other ranks wait in a step that this
  rank never makes.
Why it matters: The loss differs between ranks. If ranks do not share such a decision, sooner or later they decide
  differently and the job breaks.
Deciding evidence: The rank has batches left in its loader. Either its program ran to its end and ended with 0 while
  the others exchange, or it has made a call after its training loop while the others are in a step.
Not to be confused with: M05, where the loader was used up; C06, where sys.exit or os._exit ended the rank. Without a
  DataLoader, M05 and M11 cannot be told apart.
What to do: Decide on one rank and broadcast the decision, or all_reduce the number that the decision depends on.
How to inject it: examples/broken/m11_own_decision.py
Source: none.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in early_ends(case):
        record = case.ranks.get(exit.rank)
        own = loading_of(case, exit.rank)
        used_up = ran_out(case, exit.rank) is not None or (own is not None and (own.skipped or whole_epochs(own)))
        if record is None or record.left_by in (0, 2) or used_up:
            continue
        yield crash(
            case,
            [exit],
            code="M11",
            title=TITLE,
            level=Level.DIVERGENCE,
            confidence=Confidence.HIGH if own is not None else Confidence.UNCLEAR,
            saw=(
                f"{ended(exit)} after {record.step_count} steps, while the others still exchange; its program ran to its end",
                f"it took {own.taken} batches, and its loader has {own.batches}" if own is not None else "",
            ),
            ruled_out=("uneven batches (M05): its batches were not used up",) if own is not None else (),
            next=(
                "share the decision: broadcast it from rank 0, or all_reduce the value that it depends on",
                log_command(case, exit.rank),
            ),
        )
    for left in left_loops(case):
        if left.own is not None and not left.has_used_up_its_batches:
            yield _behind_its_loop(left, left.own)


def _behind_its_loop(left: LeftLoop, own: BatchCounts) -> CauseFinding:
    return CauseFinding(
        code="M11",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=(left.rank,),
        since_step=left.steps,
        saw=(
            f"rank {left.rank} is done with its loop after {left.steps} steps, and has called {call_text(left.call)}",
            f"it took {own.taken} batches, and its loader has {own.batches}",
            f"still in a step: {named_ranks(left.in_a_step)}",
        ),
        ruled_out=("uneven batches (M05): its batches were not used up",),
        next=("share the decision: broadcast it from rank 0, or all_reduce the value that it depends on",),
    )


RULE = Cause(
    code="M11",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("M01", "M02", "M03", "M04", "M06", "C01", "C05", "N10"),
    sure_by=(Ground.EXIT, Ground.CALLS, Ground.TIMES),
)
