"""R12: the ranks look for each other at addresses of an earlier attempt."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.stacks import frames_of, has_any, place_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "the ranks look for each other at addresses of an earlier attempt"
PAGE = """\
The ranks look for each other at addresses of an earlier attempt

What it means: torchrun keeps one store for all its attempts, and gloo's addresses of the attempt before are still in
  it under the same keys. If one rank comes a second or more before another, it reads where the other was, and connects to
  a process that is gone: it fails with `Connection refused`, or waits for the timeout of half an hour.
Why it matters: The restart that should have saved the job hangs.
Deciding evidence: It is not the launcher's first attempt, the store has counted more clients than ranks and agents of one
  attempt, and every rank is inside init_process_group.
Not to be confused with: R01 (a rank has not come: here all have).
What to do: Start the job again. `paceline run --max-restarts` has a store of its own for each attempt.
How to inject it: `torchrun --max-restarts 1` with torch 2.13, a rank that fails, and ranks that start 2 s apart.
Source: torch/distributed/elastic/agent/server/api.py; torch/csrc/distributed/c10d/ProcessGroupGloo.cpp.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    size = case.world_size or 0
    inside = [
        snapshot for snapshot in case.snapshots.values() if has_any(frames_of(snapshot), ("_new_process_group_helper",))
    ]
    for one in case.attached.values():
        joined = one.store.joined if one.store is not None else None
        # The agent of each host is one of its clients, too.
        if (
            not one.restarts
            or joined is None
            or not size
            or joined <= size + (one.hosts_wanted or 1)
            or len(inside) < size
        ):
            continue
        first = min(inside, key=lambda snapshot: snapshot.rank)
        yield CauseFinding(
            code="R12",
            title=TITLE,
            level=Level.START,
            hosts=(one.host,),
            confidence=Confidence.LIKELY,
            saw=(
                f"every rank is in init_process_group: rank {first.rank} is {place_of(first)}",
                f"it is attempt {one.restarts} of {one.launcher or 'the launcher'}: its store has counted {joined} clients of {size} ranks",
            ),
            ruled_out=("not a rank that has not come: all are there",),
            next=(
                "start the job again" + (f": kill {one.launcher_pid}" if one.launcher_pid else ""),
                "paceline run --max-restarts has a store of its own for each attempt",
            ),
        )


RULE = Cause(code="R12", title=TITLE, page=PAGE, find=find, beats=("R01", "R02"), sure_by=(Ground.SNAPSHOT,))
