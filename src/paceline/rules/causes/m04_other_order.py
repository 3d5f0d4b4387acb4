"""M04: ranks issued the same collectives in different order."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.desync.desync import (
    DesyncKind,
    Disagreement,
    call_text,
    differing,
    disagreements,
    places,
    seen_at,
)
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "the same collectives in another order"
PAGE = """\
The same collectives in another order

What it means: Every rank issued the same calls, but in a different order. Typical reasons are a dict or set that each
  rank iterates in its own order, and two threads or two asynchronous calls that race.
Why it matters: Collectives are matched by order alone. If the tensors have the same shape, the exchange succeeds and
  every rank gets the sum of different things: the loss of one rank added to the accuracy of another. The job ends
  with code 0.
Deciding evidence: Over a short stretch, the calls of two ranks are permutations of each other. Calls are told apart
  by the line of code that issued them and by the lines that led there. A different line alone proves nothing: `if
  rank == 0: barrier() ... else: barrier()` is correct.
Not to be confused with: M01 (the other operation does not occur elsewhere in the stretch); M06 (a call too many).
What to do: Iterate in the same order on every rank (sorted(metrics.items())), or stack the values into one tensor and
  exchange that tensor.
How to inject it: examples/broken/m04_swapped.py, examples/broken/m04_always.py, examples/broken/m04_thread.py
Source: torch.distributed, "Collective functions".
"""


def find(case: Case) -> Iterator[CauseFinding]:
    for divergence, found in disagreements(case, DesyncKind.ORDER):
        where = places(found)
        yield differing(
            divergence,
            found,
            code="M04",
            title=TITLE,
            confidence=Confidence.HIGH if found.sure else Confidence.LIKELY,
            saw=(*seen_at(divergence, found), *_what_follows(found)),
            next=(
                "issue them in one order on every rank" + (f": {where}" if where else ""),
                "if a dict decides the order, iterate over sorted(d.items()), or stack the values and exchange them once",
                "if two threads make them, join the thread first, or give its calls a group of their own: torch.distributed.new_group()",
            ),
        )


def _what_follows(found: Disagreement) -> tuple[str, ...]:
    if not found.sure:
        return ("both calls were issued before, on every rank, in one order",)
    mine, theirs = (" then ".join(call_text(call) for call in calls[:2]) for calls in (found.mine, found.theirs))
    return (f"in order: {mine}", f"against: {theirs}")


RULE = Cause(
    code="M04", title=TITLE, page=PAGE, find=find, beats=("M01", "M02", "M03", "C01", "C05"), sure_by=(Ground.CALLS,)
)
