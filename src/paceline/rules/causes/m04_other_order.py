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
from paceline.findings import Cause, CauseFinding, Confidence

TITLE = "the same collectives in another order"
PAGE = """\
The same collectives in another order

What it means: Every rank issued the same calls, but not in the same order: a dict or set that each rank iterates in its own order, two
  threads or two asynchronous calls that race.
Why it matters: Collectives pair up by order alone. Where the tensors have one shape the exchange works and every rank gets the sum of
  different things: the loss of one rank added to the accuracy of another. The job ends with 0.
Deciding evidence: Two ranks whose calls over a short stretch are permutations of each other, told apart by the line of code that
  issued them and the lines that led there. Another line alone is nothing: `if rank == 0: barrier() ... else: barrier()` is right.
Not to be confused with: M01 (another operation that is in no rank's stretch twice), M06 (a call too many).
What to do: Iterate in one order everywhere (sorted(metrics.items())); stack the values into one tensor and exchange that.
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
                "where a dict decides the order, iterate over sorted(d.items()), or stack the values and exchange them once",
            ),
        )


def _what_follows(found: Disagreement) -> tuple[str, ...]:
    if not found.sure:
        return ("both calls were issued before, on every rank, in one order",)
    mine, theirs = (" then ".join(call_text(call) for call in calls[:2]) for calls in (found.mine, found.theirs))
    return (f"in order: {mine}", f"against: {theirs}")


RULE = Cause(code="M04", title=TITLE, page=PAGE, find=find, beats=("M01", "M02", "M03", "C01", "C05"))
