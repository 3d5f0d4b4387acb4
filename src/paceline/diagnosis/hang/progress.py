"""Whether a rank that others wait for makes progress: the signs of it as text. Pure."""

from paceline.diagnosis.snapshots import RankSnapshot, Socket
from paceline.diagnosis.stacks import frames_of, is_compiling

BUSY_CPUS = 0.2
# A rank at rest writes a log line now and then.
NOISE_BYTES_PER_SECOND = 64_000
THROTTLED_FRACTION = 0.5
# For this long a rank that uses CPU in one place counts as making progress.
UNCHANGING_SECONDS = 120.0
_STOPPED = frozenset("TtZ")
# Timers and daemons of libraries use as much in a rank that does nothing: 0.02 to 0.04 were seen in ranks asleep. Of a machine that many
# share, a thread that has work gets more.
_AT_REST_CPUS = 0.05
_LOOPBACK = ("127.", "::1", "[::1]", "localhost")


def cpus_used(snapshot: RankSnapshot) -> float | None:
    """Cores used during the snapshot by the rank and its descendants."""
    known = [part for part in (snapshot.cpu_fraction, snapshot.children_cpu_fraction) if part is not None]
    return max(known, default=None)


def uses_a_cpu(snapshot: RankSnapshot) -> bool:
    """Whether it computes: it uses a good part of a core, or less if it waits for a CPU of a full machine."""
    return (cpus_used(snapshot) or 0.0) >= BUSY_CPUS or snapshot.state == "R"


def bytes_moved_per_second(snapshot: RankSnapshot) -> float | None:
    """Bytes read and written by the rank and its descendants; None if neither is known."""
    known = [part for part in (snapshot.read_bytes_per_second, snapshot.written_bytes_per_second) if part is not None]
    return sum(known) if known else None


def cannot_move(snapshot: RankSnapshot) -> bool:
    """Whether it is stopped, traced, frozen or dead: it cannot continue by itself, whatever its counters show."""
    return (snapshot.state or "") in _STOPPED or snapshot.frozen is True


def signs_of_progress(snapshot: RankSnapshot, *, unchanging: bool = False) -> tuple[str, ...]:
    """Signs of progress of this rank, as text; () if there are none.

    `unchanging`: it has been in one place for long, so CPU time proves nothing.
    """
    if cannot_move(snapshot):
        return ()
    signs = []
    moved = bytes_moved_per_second(snapshot) or 0.0
    if moved > NOISE_BYTES_PER_SECOND:
        signs.append(f"disk {_rate(moved)}")
    if (snapshot.state or "") == "D":
        # The bytes of one long write count for the process once it is over. Until then those of its disk show that it is not stuck.
        if not signs and (disk := snapshot.disk_bytes_per_second or 0.0) > NOISE_BYTES_PER_SECOND:
            signs.append(f"the disk that it waits for moves {_rate(disk)}")
        return tuple(signs)
    cpus = cpus_used(snapshot) or 0.0
    if (snapshot.throttled_fraction or 0.0) >= THROTTLED_FRACTION:
        signs.append(f"throttled {snapshot.throttled_fraction:.0%} of the time by its CPU quota")
    if uses_a_cpu(snapshot) and (not unchanging or is_compiling(snapshot)):
        signs.append(f"cpu {cpus:.1f} cores" if cpus >= 0.1 else "it waits for a CPU")
    elif snapshot.stack_moved and cpus > 0.02 and not unchanging:
        signs.append("its stack changes")
    elif snapshot.thread_states.get("R") and not unchanging and _waits_for_a_thread(snapshot, cpus):
        # A thread of OpenMP or gloo, for example, that the main thread waits for.
        signs.append("one of its threads waits for a CPU")
    if any(_receives(socket, snapshot) for socket in snapshot.sockets or ()):
        signs.append("receives from outside the job")
    return tuple(signs)


def _waits_for_a_thread(snapshot: RankSnapshot, cpus: float) -> bool:
    """Whether the main thread may wait for another one: it is in a futex, as far as the kernel tells, and inside torch, or that other one
    gets more of the CPUs than a rank at rest. In any other call it waits for a time, a file or a process.
    """
    if snapshot.wait_channel not in (None, "", "0") and "futex" not in snapshot.wait_channel:
        return False
    innermost = next(iter(frames_of(snapshot)), None)
    return cpus > _AT_REST_CPUS or (innermost is not None and "/torch/" in innermost.file)


def _receives(socket: Socket, snapshot: RankSnapshot) -> bool:
    """A connection to a host outside the job on which data arrived during the snapshot."""
    if socket.peer_host is not None or socket.remote.startswith(_LOOPBACK):
        return False
    window_ms = max(snapshot.seconds, 0.5) * 1000
    return bool(socket.received_bytes) and socket.last_received_ms is not None and socket.last_received_ms <= window_ms


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.1f} MB/s" if bytes_per_second >= 1e6 else f"{bytes_per_second / 1e3:.0f} kB/s"
