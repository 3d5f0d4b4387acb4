"""Why a process belongs to no job, for whoever asked for its job."""

from dataclasses import dataclass
from enum import Enum

from paceline.attach.launchers import is_never_a_rank, launcher_of
from paceline.attach.process_rows import ENDED, Read, read_at_most, read_row, read_rows
from paceline.attach.ranks import above
from paceline.probes.host_counters import TICKS_PER_SECOND


class NoJobReason(Enum):
    """Why a process belongs to no job that was found."""

    GONE = "there is no such process"
    INNER = "it is the number of a process in another pid namespace"
    ZOMBIE = "it has ended, and its parent has not waited for it"
    REFUSED = "it may not be read"
    LAUNCHER = "it is a launcher that has started no rank yet"
    NO_RANK = "it is no rank, and no process below it is one"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoJob:
    """Why `find_jobs` finds nothing for a process."""

    pid: int
    """The number that was asked for."""
    reason: NoJobReason
    """Which of these holds."""
    user: int | None = None
    """Uid of the process."""
    launcher: str = ""
    """Which launcher it is."""
    below: int = 0
    """Number of processes below it."""
    age_seconds: float | None = None
    """How long it has run."""
    here: tuple[int, ...] = ()
    """Processes that have this number in their own pid namespace, by their numbers here."""


def why_no_job(pid: int, *, read: Read = read_at_most) -> NoJob:
    """Why a process belongs to no job, after `find_jobs` found none for it.

    Raises:  OSError: there is no /proc
    """
    rows = read_rows((), read)
    row = read_row(pid, None, read)
    if row is None:
        here = tuple(sorted(one.pid for one in rows.values() if pid in one.inner_pids))
        return NoJob(pid=pid, reason=NoJobReason.INNER if here else NoJobReason.GONE, here=here)
    with open("/proc/uptime", "rb") as file:
        age_seconds = max(0.0, float(file.read().split()[0]) - row.start_ticks / TICKS_PER_SECOND)
    launcher = launcher_of(row.command)
    if row.state in ENDED:
        reason = NoJobReason.ZOMBIE
    elif is_never_a_rank(row.command):
        reason = NoJobReason.LAUNCHER
    else:
        reason = NoJobReason.REFUSED if row.refused else NoJobReason.NO_RANK
    below = sum(pid in above(one, rows) for one in rows)
    return NoJob(pid=pid, reason=reason, user=row.user, launcher=launcher, below=below, age_seconds=age_seconds)
