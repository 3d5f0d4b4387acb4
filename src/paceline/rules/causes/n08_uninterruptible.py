"""N08: a rank is in an uninterruptible system call that does not return."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.lagging_ranks import LaggingRank, late_ranks, need_snapshots
from paceline.diagnosis.hang.progress import NOISE_BYTES_PER_SECOND, bytes_moved_per_second
from paceline.diagnosis.snapshots import HostSnapshot
from paceline.diagnosis.stacks import place_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

PAGE = """\
A rank hangs in a system call (state D)

What it means: The rank is in a system call, and the kernel waits for something that does not answer: a network file
  system, a FUSE mount, a disk or swap. Not even SIGKILL ends such a wait.
Why it matters: The rank cannot be asked, stopped or replaced. The cause lies outside the job and often affects every
  process that touches the same mount.
Deciding evidence: Every snapshot shows state D, and no bytes were read or written in between, by the rank or by the
  disk below the path. The kernel function or the path that the rank waits for is known.
Not to be confused with: N04 (the disk below the path moves data: it is slow); N01 (state S); N09 (a control group
  froze the rank, which shows state D too).
What to do: Look at the mount that the finding names: run `stat` on it from another shell, read `dmesg | tail`, and
  check the server behind it. Keep checkpoints and data on a file system that answers. Mount NFS `soft` only where
  lost writes are acceptable.
How to inject it: as root, `paceline run --nproc-per-node 2 examples/broken/n08_uninterruptible.py`, then `paceline
  why`.
Source: proc(5), fields state and wchan; Documentation/accounting/psi.rst.
"""

_WHAT_WAITS = {
    "nfs": "a network file system (NFS)",
    "rpc": "a network file system (NFS)",
    "fuse": "a FUSE file system",
    "cifs": "a network file system (SMB)",
    "ceph": "a network file system (Ceph)",
    "lustre": "a network file system (Lustre)",
    "ll_": "a network file system (Lustre)",
    "io_schedule": "a disk",
    "folio_wait": "a page from a disk",
    "wait_on_page": "a page from a disk",
    "swap": "swap",
    "userfault": "a page that another process must provide (userfaultfd)",
    "jbd2": "a file system's journal",
    "vfork": "a child of vfork",
}


_KERNEL_SAYS = re.compile(r"not responding|blocked for more than|I/O error|timed out", re.IGNORECASE)


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks in state D that move no data and are not frozen."""
    unread = []
    for late in late_ranks(case):
        snapshot = late.snapshot
        if snapshot.state is None:
            unread.append(late.rank)
        elif (
            snapshot.state == "D"
            and snapshot.frozen is not True
            and not _moves(late)
            and not late.waits_for_a_slow_disk
        ):
            yield _finding(case, late)
    if unread:
        raise Unknown(f"the process state of rank {unread[0]}")
    need_snapshots(case)


def _moves(late: LaggingRank) -> bool:
    return (bytes_moved_per_second(late.snapshot) or 0.0) > NOISE_BYTES_PER_SECOND


def _finding(case: Case, late: LaggingRank) -> CauseFinding:
    snapshot = late.snapshot
    channel = snapshot.wait_channel if snapshot.wait_channel not in (None, "", "0") else None
    what = next((words for part, words in _WHAT_WAITS.items() if channel and part in channel), None)
    host = case.host_snapshots.get(snapshot.host)
    pressure = host.pressure_io if host is not None else None
    # "PATH (KIND on MOUNT)"
    path = snapshot.blocked_on.split(" (")[0] if snapshot.blocked_on else None
    known = snapshot.frozen is False and (channel is not None or snapshot.blocked_on is not None)
    return CauseFinding(
        code="N08",
        title="rank hangs in a system call" + (f" on {path}" if path else ""),
        level=Level.STALL,
        ranks=(late.rank,),
        confidence=Confidence.HIGH if known else Confidence.LIKELY,
        since_step=late.stall.since_step,
        saw=(
            f"state D (uninterruptible) of pid {snapshot.pid} on {snapshot.host}"
            + (f", in {channel}" if channel else "")
            + (f": it waits for {what}" if what else ""),
            *((f"system call {snapshot.system_call}",) if snapshot.system_call else ()),
            *((f"it waits on {snapshot.blocked_on}",) if snapshot.blocked_on else ()),
            *((f"its main thread is {place_of(snapshot)}",) if late.frames else ()),
            late.how_late,
            *(f"the kernel of {snapshot.host} said: {line}" for line in _lines_about_it(host)),
            *((f"I/O pressure of {snapshot.host}: {pressure:.0%} of the time",) if pressure else ()),
        ),
        ruled_out=(
            *(("not frozen by a control group",) if snapshot.frozen is False else ()),
            *(() if snapshot.disk_bytes_per_second is None else ("not merely slow: the disk below moves nothing",)),
        ),
        next=(
            f"on {snapshot.host}: ls -d {path}" if path else f"on {snapshot.host}: cat /proc/{snapshot.pid}/stack",
            f"on {snapshot.host}: dmesg | tail",
        ),
    )


def _lines_about_it(host: HostSnapshot | None) -> tuple[str, ...]:
    """The newest line of the kernel that is about a file system or a task that does not answer."""
    lines = host.kernel_lines or () if host is not None else ()
    return tuple(line for line in lines if _KERNEL_SAYS.search(line))[-1:]


RULE = Cause(
    code="N08",
    title="rank in an uninterruptible call",
    page=PAGE,
    find=find,
    beats=("N01", "N03", "N04", "N06", "N07"),
    sure_by=(Ground.SNAPSHOT,),
)
