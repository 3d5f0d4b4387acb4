"""R11: the job's store does not answer."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import frames_of, has_any, place_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "the job's store does not answer"
PAGE = """\
The job's store does not answer

What it means: Ranks meet at a store, a small server in rank 0, in torchrun's agent or in paceline's. They are connected
  to it and ask it something; it takes connections and gives no answer, or takes none any more.
Why it matters: No process group forms without it, and none is made or ended later. Every rank waits, and none is late.
Deciding evidence: A client of ours that changes nothing got no answer at the address to which the ranks are connected,
  while ranks are inside a call of the store.
Not to be confused with: R02 (nobody listens at the address); R09 (a firewall between); N02 (a rank is stopped: its store
  then answers nobody either, and both are said).
What to do: Look at the process that holds the store: is it stopped (`kill -CONT PID`), out of memory, on a host that is gone?
How to inject it: `torchrun --nproc-per-node 2 examples/attached/r11_frozen_store.py`, then `paceline why PID`.
Source: torch/csrc/distributed/c10d/TCPStore.cpp.
"""
_AT_THE_STORE = (
    "distributed_c10d.py:_store_based_barrier", "distributed_c10d.py:_new_process_group_helper", "torch/distributed/rendezvous.py",
    "elastic/utils/store.py", "distributed_c10d.py:init_process_group",
)  # fmt: skip
_SAYS_NOTHING = ("silent", "refused", "timed out")


def find(case: Case) -> Iterator[CauseFinding]:
    for one in case.attached.values():
        if one.store is None or one.store.answer not in _SAYS_NOTHING:
            continue
        inside = sorted((s for s in case.snapshots.values() if _is_at_the_store(s)), key=lambda s: s.rank)
        if not inside:
            continue
        ranks = tuple(snapshot.rank for snapshot in inside)
        yield CauseFinding(
            code="R11",
            title=TITLE,
            level=Level.STALL,
            hosts=(one.host,),
            confidence=Confidence.HIGH if case.stall is not None else Confidence.LIKELY,
            saw=(
                f"a connection to {one.store.address}: {one.store.answer}",
                *((f"it is held by {one.store.holder}",) if one.store.holder else ()),
                f"{named_ranks(ranks)} wait{'s' * (len(ranks) == 1)} for it: rank {ranks[0]} is {place_of(inside[0])}",
            ),
            ruled_out=("not a late rank: the ranks wait for no rank",),
            next=("look at that process: is it stopped (kill -CONT), out of memory, on a host that is gone?",),
        )


def _is_at_the_store(snapshot: RankSnapshot) -> bool:
    return has_any(frames_of(snapshot), _AT_THE_STORE) is not None


RULE = Cause(
    code="R11",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("N01", "R01", "M20"),
    levels=(Level.STALL,),
    sure_by=(Ground.SNAPSHOT,),
)
