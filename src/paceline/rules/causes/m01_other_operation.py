"""M01: at the same place, ranks of one group issued different collectives."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.desync.desync import DesyncKind, differing, disagreements, places, seen_at, whereabouts
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "different collectives at the same place"
PAGE = """\
Different collectives at the same place

What it means: The collectives of a group are matched by their order alone. Here the n-th call of one rank is, for
  example, an all_reduce, and the n-th call of another rank is a broadcast. Usually two branches of the code should
  issue the same call and do not.
Why it matters: On most backends both ranks wait until the timeout. The message then names a rank that is not at
  fault.
Deciding evidence: paceline compares the calls of the ranks as they are issued. It reports the first index at which
  the operations differ, with the line of code on each side.
Not to be confused with: M04 (the same calls in another order); M06 (some ranks make one call more, and all later
  calls are shifted); M02 and M03 (the same operation on other tensors).
What to do: Make both branches issue the same collective, or move the call out of the branch.
How to inject it: examples/broken/m01_broadcast.py
Source: torch.distributed, "Collective functions": calls are matched by order only.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    for divergence, found in disagreements(case, DesyncKind.OPERATION):
        where = places(found)
        yield differing(
            divergence,
            found,
            code="M01",
            title=TITLE,
            saw=(*seen_at(divergence, found), *whereabouts(case, found)),
            ruled_out=("another order or an extra call: the calls before and after show neither",),
            next=(
                f"issue the same collective on every rank: {where}"
                if where
                else "issue the same collective on every rank",
                "where a value decides which call is made, all ranks must decide alike: all_reduce it first (reduce gives it to one rank)",
                "where a set decides the order, sort it: each Python process orders texts in its own way (PYTHONHASHSEED)",
            ),
        )


RULE = Cause(code="M01", title=TITLE, page=PAGE, find=find, beats=("C01", "C05"), sure_by=(Ground.CALLS,))
