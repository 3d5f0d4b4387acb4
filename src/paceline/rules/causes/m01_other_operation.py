"""M01: at the same place, ranks of one group issued different collectives."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.desync.desync import DesyncKind, differing, disagreements, places, seen_at
from paceline.findings import Cause, CauseFinding

TITLE = "different collectives at the same place"
PAGE = """\
Different collectives at the same place

What it means: Collectives of a group pair up by their order alone. Here one rank's n-th call is, say, an all_reduce and another
  rank's n-th call a broadcast: two branches of the code that were meant to do the same.
Why it matters: On most backends both wait until the timeout, and the message then names a rank that is not at fault.
Deciding evidence: The calls themselves, compared rank by rank as they are issued: the first index at which the operations differ,
  with the line of code on each side.
Not to be confused with: M04 (the same calls in another order), M06 (one call more on some ranks, after which all goes on shifted), M02
  and M03 (the same operation on other tensors).
What to do: Make both branches issue the same collective, or move the call out of the branch.
How to inject it: examples/broken/m01_broadcast.py
Source: torch.distributed, "Collective functions"; the order of calls is the only thing that pairs them.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    for divergence, found in disagreements(case, DesyncKind.OPERATION):
        where = places(found)
        yield differing(
            divergence,
            found,
            code="M01",
            title=TITLE,
            saw=seen_at(divergence, found),
            ruled_out=("another order or a call too many: what comes before and after does not show it",),
            next=(
                f"issue the same collective on every rank: {where}"
                if where
                else "issue the same collective on every rank",
            ),
        )


RULE = Cause(code="M01", title=TITLE, page=PAGE, find=find, beats=("C01", "C05"))
