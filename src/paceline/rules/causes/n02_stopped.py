"""N02: a rank was stopped by a signal, or a debugger holds it."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.lagging_ranks import LaggingRank, late_ranks, need_snapshots
from paceline.findings import Cause, CauseFinding, Ground, Unknown

PAGE = """\
A rank is stopped, or a debugger holds it

What it means: The kernel does not let the process run. A process sent SIGSTOP (or SIGTSTP or SIGTTIN from a
  terminal), or a debugger is attached and has halted the process.
Why it matters: A stopped process prints nothing, answers nothing and never times out by itself. The other ranks wait
  for it.
Deciding evidence: /proc/PID/stat shows state T, or state t with the tracer's pid in TracerPid. Data that other ranks
  sent lies unread in its sockets.
Not to be confused with: N01 (the rank is asleep: state S); N09 (a control group froze the rank: no signal was sent,
  and SIGCONT changes nothing).
What to do: `kill -CONT PID` continues a stopped process. If the finding names a debugger, detach or end it.
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n02_stopped.py`, then `paceline why`.
Source: proc(5), fields state and TracerPid; signal(7), job control.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks in state T or t."""
    unread = []
    for late in late_ranks(case):
        if late.snapshot.state is None:
            unread.append(late.rank)
        elif late.snapshot.state in ("T", "t") and late.snapshot.frozen is not True:
            yield _finding(late)
    if unread:
        raise Unknown(f"the process state of rank {unread[0]}")
    need_snapshots(case)


def _finding(late: LaggingRank) -> CauseFinding:
    snapshot = late.snapshot
    traced = snapshot.state == "t" or bool(snapshot.tracer_pid)
    unread = sum(socket.receive_queue_bytes for socket in snapshot.sockets or ())
    if traced and snapshot.tracer_pid:
        step = f"on {snapshot.host}: detach or end the debugger, process {snapshot.tracer_pid}"
    elif late.lasts:
        step = f"on {snapshot.host}: kill -CONT {snapshot.pid}"
    else:
        step = f"find out what stops processes on {snapshot.host}: a scheduler that suspends jobs, Ctrl-Z, a debugger, kill -STOP"
    return CauseFinding(
        code="N02",
        title="rank held by a debugger" if traced else "rank stopped by a signal",
        level=Level.STALL,
        ranks=(late.rank,),
        since_step=late.stall.since_step,
        saw=(
            f"state {snapshot.state} of pid {snapshot.pid} on {snapshot.host}"
            + (f", traced by process {snapshot.tracer_pid}" if snapshot.tracer_pid else ""),
            late.how_late,
            *((f"{unread:,} bytes lie unread in its sockets",) if unread else ()),
        ),
        ruled_out=(
            f"not asleep: the state is {snapshot.state}, not S",
            *(("not frozen by a control group",) if snapshot.frozen is False else ()),
        ),
        next=(step,),
    )


RULE = Cause(
    code="N02",
    title="rank stopped or in a debugger",
    page=PAGE,
    find=find,
    beats=("N01", "N03", "N04", "N06", "N07"),
    sure_by=(Ground.SNAPSHOT,),
)
