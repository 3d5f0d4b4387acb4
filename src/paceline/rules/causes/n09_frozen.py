"""N09: a control group froze the rank's processes."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.lagging_ranks import LaggingRank, late_ranks, need_snapshots
from paceline.findings import Cause, CauseFinding, Ground, Unknown

PAGE = """\
A rank is frozen by a control group

What it means: The freezer of its control group holds all processes of the rank at once. `docker pause` does this, and
  so do a container runtime or an orchestrator that checkpoints or evicts, and a battery or cluster manager.
Why it matters: A frozen process is not told about it and answers no signal but SIGKILL. Later it continues as if
  nothing had happened, and by then the other ranks may have given up.
Deciding evidence: The rank's own group shows freezer.state FROZEN (version 1) or frozen 1 in cgroup.events (version
  2). The process state is D or S.
Not to be confused with: N08 (state D because of a file system: other processes on that mount hang as well); N02
  (state T: a signal).
What to do: Thaw the group: run `docker unpause`, or write THAWED (version 1) or 0 (version 2) into the group's file.
  Then find out who froze it.
How to inject it: as root, `paceline run --nproc-per-node 2 examples/broken/n09_frozen.py`, then `paceline why`.
Source: Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst and cgroup-v2.rst, cgroup.freeze.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks whose control group is frozen."""
    unread = []
    for late in late_ranks(case):
        if late.snapshot.frozen is True:
            yield _finding(late)
        elif late.snapshot.frozen is None and (late.snapshot.state or "D") == "D":
            # In any other state the process cannot be frozen.
            unread.append(late.rank)
    if unread:
        raise Unknown(f"whether the control group of rank {unread[0]} is frozen")
    need_snapshots(case)


def _finding(late: LaggingRank) -> CauseFinding:
    snapshot = late.snapshot
    states = ", ".join(f"{count} in state {state}" for state, count in sorted(snapshot.thread_states.items()))
    return CauseFinding(
        code="N09",
        title="rank frozen by its control group",
        level=Level.STALL,
        ranks=(late.rank,),
        since_step=late.stall.since_step,
        saw=(
            f"the control group of pid {snapshot.pid} on {snapshot.host} is frozen",
            *((f"threads: {states}",) if states else ()),
            late.how_late,
        ),
        ruled_out=(
            "not a file system that hangs: the freezer says FROZEN",
            "not a signal: no SIGSTOP makes this state",
        ),
        next=(
            f"on {snapshot.host}: grep freezer /proc/{snapshot.pid}/cgroup (version 2: cat /proc/{snapshot.pid}/cgroup) names the group",
            "docker unpause CONTAINER, or echo THAWED > freezer.state (version 2: echo 0 > cgroup.freeze) in that group",
        ),
    )


RULE = Cause(
    code="N09",
    title="rank frozen",
    page=PAGE,
    find=find,
    beats=("N01", "N02", "N03", "N04", "N06", "N07", "N08"),
    sure_by=(Ground.SNAPSHOT,),
)
