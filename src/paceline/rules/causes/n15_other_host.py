"""N15: the ranks of this host wait for ranks of a host that was not looked at."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "every rank here waits for ranks of another host"
PAGE = """\
Every rank here waits for ranks of a host that was not looked at

What it means: The job has ranks on other hosts, and all ranks of this one are inside a collective. Whoever is late is
  there.
Why it matters: Nothing that can be seen here is the cause.
Deciding evidence: Each rank here waits, and ranks of the world size are on no host that was looked at.
Not to be confused with: R01 (the ranks were never started); C16 (a rank of this host is gone).
What to do: Look there as well: `paceline why PID` on each of the hosts that the finding names.
How to inject it: `paceline why PID` on one of two hosts of a job that hangs on the other.
Source: paceline/attach/judge.py.
"""
_MOST_ADDRESSES = 8


def find(case: Case) -> Iterator[CauseFinding]:
    stall = case.stall
    if stall is None or not stall.waiting or not case.attached:
        return
    missing = {rank for one in case.attached.values() for rank in one.missing}
    unseen = sorted(set(range(case.world_size or 0)) - set(case.ranks) - missing)
    if not unseen or set(stall.late) - set(unseen):
        return
    addresses = sorted({address for one in case.attached.values() for address in one.addresses})
    shown = ", ".join(addresses[:_MOST_ADDRESSES])
    yield CauseFinding(
        code="N15",
        title=TITLE,
        level=Level.STALL,
        hosts=tuple(case.attached),
        confidence=Confidence.LIKELY,
        saw=(
            f"{named_ranks(stall.waiting)} wait{'s' * (len(stall.waiting) == 1)} for {named_ranks(unseen)}, which were not looked at",
            *((f"they are connected to {shown}",) if shown else ()),
        ),
        next=("look there too: paceline why PID on " + (shown or "the other hosts"),),
    )


RULE = Cause(code="N15", title=TITLE, page=PAGE, find=find, sure_by=(Ground.CALLS,))
