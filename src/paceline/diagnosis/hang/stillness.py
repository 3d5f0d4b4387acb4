"""Whether a rank does nothing: in every snapshot, between the snapshots, and in every heartbeat. Pure.

One snapshot of half a second may miss a rank that sometimes gets a CPU, so the use from one snapshot to the next counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.diagnosis.case import Heartbeat
from paceline.diagnosis.hang.progress import (
    NOISE_BYTES_PER_SECOND,
    bytes_moved_per_second,
    cannot_move,
    signs_of_progress,
)
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import signature_of

# Threads of torch and of libraries wake up now and then.
IDLE_CPUS = 0.05
_FILE_CALLS = (
    "open openat openat2 close read pread64 readv preadv write pwrite64 writev pwritev fsync fdatasync sync sync_file_range msync "
    "truncate ftruncate fallocate rename renameat unlink unlinkat stat statx newfstatat getdents64 sendfile copy_file_range"
)
_FILE_SYSTEMS = ("fuse", "nfs", "ceph", "lustre", "cifs", "jbd2", "folio", "writeback")


@dataclass(frozen=True, slots=True)
class Still:
    """A rank in which nothing has changed from one snapshot to another."""

    first: RankSnapshot
    """The first of these snapshots."""
    last: RankSnapshot
    """The last of them."""
    snapshots: int = 1
    """Number of snapshots, both included."""

    @property
    def seconds(self) -> float:
        return (self.last.at_ns - self.first.at_ns) / 1e9


def seen_still(before: Still | None, snapshot: RankSnapshot) -> Still | None:
    """What is known after one more snapshot; None if it shows progress or not enough to decide.

    Holds:   a rank that used CPU or moved data between two snapshots is still since the second one only
    """
    if not _is_idle(snapshot):
        return None
    if (
        before is None
        or before.last.pid != snapshot.pid
        or snapshot.at_ns <= before.last.at_ns
        or _moved(before.last, snapshot)
    ):
        return Still(snapshot, snapshot)
    return Still(before.first, snapshot, before.snapshots + 1)


def waits_for_files(snapshot: RankSnapshot) -> bool:
    """Whether it waits for a disk or a file system. A flush of a checkpoint, for example, shows no bytes until it is over."""
    at = snapshot.wait_channel or ""
    on_a_path = (snapshot.blocked_on or "").startswith("/") and snapshot.system_call in _FILE_CALLS.split()
    child = any(child.state == "D" for child in snapshot.children or ())
    return snapshot.state == "D" or child or on_a_path or any(kind in at for kind in _FILE_SYSTEMS)


@dataclass(slots=True)
class CpuUse:
    """Since when each rank has used no CPU, by its heartbeats: twice a second for every rank, also without snapshots."""

    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    _idle_since: dict[int, int] = field(default_factory=dict)

    def note(self, heartbeats: Mapping[int, Heartbeat]) -> None:
        for rank, heartbeat in heartbeats.items():
            if heartbeat.cpu_seconds is None:
                self._seen.pop(rank, None)
                self._idle_since.pop(rank, None)
                continue
            at_ns, used = self._seen.get(rank, (0, -1.0))
            seconds = (heartbeat.at_ns - at_ns) / 1e9
            if 0 <= seconds < 1 and heartbeat.state != "R":
                continue
            # A rank that waits for a CPU uses none.
            busy = heartbeat.state == "R" or used < 0 or not 0 <= heartbeat.cpu_seconds - used <= IDLE_CPUS * seconds
            self._seen[rank] = heartbeat.at_ns, heartbeat.cpu_seconds
            if busy or rank not in self._idle_since:
                self._idle_since[rank] = heartbeat.at_ns

    def idle_since_ns(self, rank: int) -> int | None:
        """Since when; None: the rank's use is not known."""
        return self._idle_since.get(rank)


def _is_idle(snapshot: RankSnapshot) -> bool:
    if cannot_move(snapshot):
        return True
    known = (
        snapshot.state is not None
        and snapshot.cpu_fraction is not None
        and bytes_moved_per_second(snapshot) is not None
    )
    runnable = snapshot.state == "R" or snapshot.thread_states.get("R", 0) > 0
    return known and not runnable and not signs_of_progress(snapshot)


def _moved(before: RankSnapshot, after: RankSnapshot) -> bool:
    """Whether the rank did anything between two snapshots. A value that is unknown is replaced by the other signs."""
    seconds = (after.at_ns - before.at_ns) / 1e9
    if cannot_move(after) and cannot_move(before):
        return False
    if None not in (before.cpu_seconds, after.cpu_seconds):
        used = (after.cpu_seconds or 0.0) - (before.cpu_seconds or 0.0)
        # Less than before: one of its child processes has ended.
        if not 0 <= used <= IDLE_CPUS * seconds:
            return True
    if None not in (before.moved_bytes, after.moved_bytes):
        moved = (after.moved_bytes or 0) - (before.moved_bytes or 0)
        if not 0 <= moved <= NOISE_BYTES_PER_SECOND * seconds:
            return True
    sent = _sent_and_received(before)
    if any(
        total - sent.get(ends, total) > NOISE_BYTES_PER_SECOND * seconds
        for ends, total in _sent_and_received(after).items()
    ):
        return True
    places = signature_of(before), signature_of(after)
    return all(places) and places[0] != places[1]


def _sent_and_received(snapshot: RankSnapshot) -> dict[tuple[str, str], int]:
    return {
        (socket.local, socket.remote): (socket.sent_bytes or 0) + (socket.received_bytes or 0)
        for socket in snapshot.sockets or ()
    }
