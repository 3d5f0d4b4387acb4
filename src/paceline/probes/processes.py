"""CPU and memory of ranks and their descendants, from /proc/PID/stat."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paceline.probes.host_counters import TICKS_PER_SECOND

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STAT_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """One process, as /proc/PID/stat shows it."""

    pid: int
    """Process id."""
    parent: int
    """Process id of the parent."""
    state: str
    """State letter."""
    cpu_seconds: float
    """CPU time, including that of children that were waited for."""
    resident_bytes: int
    """Resident memory."""
    threads: int
    """Number of threads."""
    start_ticks: int
    """Start time in clock ticks since boot. It tells processes apart that had the same pid."""
    own_cpu_seconds: float = 0.0
    """CPU time without that of children."""
    major_faults: int = 0
    """Page faults for which it has waited for a disk."""


def parse_stat(text: str) -> ProcessStat:
    """/proc/PID/stat; the name in parentheses may itself hold spaces and parentheses."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(")")[2].split()
    return ProcessStat(
        pid=int(pid),
        parent=int(fields[1]),
        state=fields[0],
        cpu_seconds=sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_SECOND,
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        own_cpu_seconds=sum(int(ticks) for ticks in fields[11:13]) / TICKS_PER_SECOND,
        major_faults=int(fields[9]),
    )


def read_stat(pid: int) -> ProcessStat | None:
    """The process as it is now; None when it is gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parse_stat(os.read(descriptor, _STAT_BYTES).decode(errors="replace"))
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(descriptor)


def read_wait_seconds(pid: int) -> float | None:
    """How long the main thread was ready to run but had no CPU since it started; None if the kernel does not report it.

    Source:  Linux, Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat
    """
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class MovedBytes:
    """Bytes that a process has moved so far, including the page cache, sockets, and children that were waited for."""

    read: int
    """Bytes read."""
    written: int
    """Bytes written."""


def parse_io(text: str) -> MovedBytes:
    """/proc/PID/io. A mapped file counts when it is read from a disk, any other file when it is read.

    Raises:  ValueError: its fields are not there
    """
    counts = {name: int(value) for name, _, value in (line.partition(": ") for line in text.splitlines()) if value}
    try:
        return MovedBytes(max(counts["rchar"], counts["read_bytes"]), max(counts["wchar"], counts["write_bytes"]))
    except KeyError as error:
        raise ValueError(f"no {error} in /proc/PID/io") from None


def read_io(pid: int) -> MovedBytes | None:
    """Bytes that a process moved; None if it is gone or may not be read by this user."""
    try:
        with open(f"/proc/{pid}/io") as file:
            return parse_io(file.read())
    except (OSError, ValueError):
        return None


class ProcessTree:
    """The process tree, kept up to date by reading only processes that are new since last time.

    A process keeps the parent it had when first seen, so that one whose parent died is still counted where it belongs.
    """

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def refresh(self) -> None:
        alive = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        for pid in self._parents.keys() - alive:
            del self._parents[pid]
        for pid in alive - self._parents.keys():
            found = read_stat(pid)
            if found is not None:
                self._parents[pid] = found.parent

    def descendants(self, roots: Iterable[int]) -> dict[int, list[int]]:
        """Root -> all its living descendants, without the root. A root below another root counts separately."""
        children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            children.setdefault(parent, []).append(pid)
        wanted = set(roots)
        return {root: list(_below(root, children, wanted)) for root in wanted}


def _below(root: int, children: dict[int, list[int]], others: set[int]) -> Iterator[int]:
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in others:
                yield child
                waiting.append(child)
