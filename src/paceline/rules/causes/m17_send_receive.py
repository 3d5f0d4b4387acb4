"""M17: sends and receives that do not meet: ranks wait for each other, at least one of them in a send or a receive."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import early_ends
from paceline.diagnosis.desync.desync import call_text
from paceline.diagnosis.hang.wait_cycles import TO_ONE_PEER, Wait, circle_of_waits, is_seen_in_call
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "a send and a receive that do not meet"
PAGE = """\
A send and a receive that do not meet

What it means: A rank waits in send or recv for a second rank, and the second rank waits, directly or through others,
  for the first: both receive, both send without buffering, or one is in a collective that needs the other. Or the
  second rank's program has ended: one sends more or fewer pieces than the other receives. A pipeline whose stages
  disagree on the schedule does this.
Why it matters: Sends and receives have no common count, so no rank seems to be behind.
Deciding evidence: There is a cycle of ranks. Each rank waits for the next, and at least one of them waits in send or
  recv. paceline knows the newest call of each rank and its peer. Or the peer of a rank's newest call, a send or recv,
  has ended with 0.
Not to be confused with: M16, where only collectives are in the cycle; N01, where the peer waits for nobody and has
  not come.
What to do: In each pair, one rank must send while the other receives. Order them by rank (even ranks send first), or
  hand both calls to dist.batch_isend_irecv.
How to inject it: examples/broken/m17_both_receive.py
Source: torch.distributed, "Point-to-point communication".
"""


def find(case: Case) -> Iterator[CauseFinding]:
    yield from _with_one_that_ended(case)
    circle = circle_of_waits(case)
    if not any(wait.is_to_one_peer for wait in circle):
        return
    still = case.stall
    pairs = list(zip(circle, (*circle[1:], circle[0]), strict=True))
    lines = dict.fromkeys(
        str(wait.call.site) for wait in circle if wait.call is not None and wait.call.site is not None
    )
    yield CauseFinding(
        code="M17",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=tuple(sorted(wait.rank for wait in circle)),
        confidence=Confidence.HIGH
        if all(is_seen_in_call(case, wait) for wait in circle if wait.is_to_one_peer)
        else Confidence.LIKELY,
        since_step=still.since_step if still is not None else None,
        saw=tuple(_said(wait, awaited) for wait, awaited in pairs),
        ruled_out=("a late rank: every rank in the cycle waits for another",),
        next=(
            "let one of each pair send while the other receives" + (f": {' and '.join(lines)}" if lines else ""),
            "or hand both to torch.distributed.batch_isend_irecv",
        ),
    )


def _with_one_that_ended(case: Case) -> Iterator[CauseFinding]:
    """Ranks whose newest call is a send to or a receive from a rank whose program has ended."""
    for exit in early_ends(case):
        for rank, heartbeat in sorted(case.heartbeats.items()):
            call = heartbeat.last_call
            if call is None or call.operation not in TO_ONE_PEER or call.root != exit.rank or rank == exit.rank:
                continue
            other = "sends" if call.operation == "recv" else "receives"
            yield CauseFinding(
                code="M17",
                title=TITLE,
                level=Level.DIVERGENCE,
                ranks=tuple(sorted((rank, exit.rank))),
                confidence=Confidence.LIKELY,
                saw=(
                    f"rank {rank} waits for rank {exit.rank} in {call_text(call)}",
                    f"rank {exit.rank} has ended with code 0",
                ),
                ruled_out=("uneven batches (M05): the call has one peer",),
                next=(
                    f"let rank {exit.rank} make as many {other} as rank {rank} makes calls of {call.operation}"
                    + (f": {call.site}" if call.site is not None else ""),
                ),
            )


def _said(wait: Wait, awaited: Wait) -> str:
    what = call_text(wait.call) if wait.call is not None else "a collective"
    return f"rank {wait.rank} waits for rank {awaited.rank} in {what}"


RULE = Cause(
    code="M17", title=TITLE, page=PAGE, find=find, beats=("M05", "M11", "C01"), sure_by=(Ground.CALLS, Ground.EXIT)
)
