"""The ranks that others wait for, each with its snapshot: the input of the N rules. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paceline.backend_names import waits_on_device
from paceline.diagnosis.case import Case, Level, Stall, name_of_recorder
from paceline.diagnosis.hang.progress import (
    NOISE_BYTES_PER_SECOND,
    UNCHANGING_SECONDS,
    bytes_moved_per_second,
    cannot_move,
    cpus_used,
    signs_of_progress,
    uses_a_cpu,
)
from paceline.diagnosis.hang.wait_graph import CALLS, PHASE, STACKS, STEPS
from paceline.diagnosis.snapshots import Frame, RankSnapshot
from paceline.diagnosis.stacks import frames_of, gil_is_held, is_waiting_in_collective, users_frame
from paceline.findings import Unknown
from paceline.recording.rank_sets import named_ranks


@dataclass(frozen=True, slots=True)
class LaggingRank:
    """One late rank that was inspected."""

    snapshot: RankSnapshot
    """Its snapshot."""
    stall: Stall
    """The stall in which it is late."""
    progress: tuple[str, ...]
    """Texts about everything in which it makes progress."""
    in_place_seconds: float
    """Time for which it is known to be in one place."""
    lasts: bool = True
    """The job still runs."""
    backend: str | None = None
    """Of its group, as the script named it; None: not known."""

    @property
    def rank(self) -> int:
        return self.snapshot.rank

    @property
    def frames(self) -> tuple[Frame, ...]:
        return frames_of(self.snapshot)

    @property
    def users(self) -> Frame | None:
        return users_frame(self.snapshot)

    @property
    def level(self) -> Level:
        return Level.WAITING if self.progress else Level.STALL

    def while_it_lasts(self, step: str) -> tuple[str, ...]:
        """Advice that needs the rank's process; nothing once the job is over."""
        return (step,) if self.lasts else ()

    @property
    def is_free(self) -> bool:
        """Neither stopped, frozen nor in an uninterruptible call, so its stack shows what it does."""
        return not cannot_move(self.snapshot) and (self.snapshot.state or "") != "D" and not _is_held(self.snapshot)

    @property
    def waits_for_a_slow_disk(self) -> bool:
        """It is in an uninterruptible call on a file, and the disk below the file moves data."""
        snapshot = self.snapshot
        is_waiting = snapshot.state == "D" and not cannot_move(snapshot)
        return is_waiting and (snapshot.disk_bytes_per_second or 0.0) > NOISE_BYTES_PER_SECOND

    @property
    def is_busy(self) -> bool:
        return uses_a_cpu(self.snapshot)

    @property
    def is_in_its_own_code(self) -> bool:
        """The innermost frame is the user's: it calls no library."""
        return bool(self.frames) and self.frames[0].users

    @property
    def moves_bytes(self) -> bool:
        return any(sign.startswith(("disk", "receives")) for sign in signs_of_progress(self.snapshot))

    @property
    def may_wait_for_device(self) -> bool:
        """Whether the line at which it stands may wait, as the others do, for a collective of the device that no recorder shows."""
        on_device = bool(self.snapshot.gpus) if self.backend is None else waits_on_device(self.backend)
        return on_device and self.stall.basis in (CALLS, PHASE, STACKS, STEPS)

    @property
    def how_late(self) -> str:
        """Which ranks wait for it, and how that is known."""
        still = self.stall
        waiting = named_ranks(still.waiting)
        if not still.waiting:
            return f"rank {self.rank} has not moved, and no rank is seen inside a collective"
        where = f" in {_OPERATIONS.get(still.operation, still.operation)}" if still.operation else ""
        where += f" of {still.payload}" if still.operation and still.payload else ""
        place = "" if still.index is None else f" (collective {still.index} of group {still.group or '0'})"
        verb = "waits" if len(still.waiting) == 1 else "wait"
        return f"{waiting} {verb}{where}{place} for rank {self.rank}, by {words_of_basis(still)}"

    @property
    def activity(self) -> str:
        """State, CPU and bytes during the snapshot, as far as they are known."""
        snapshot = self.snapshot
        parts = [] if snapshot.state is None else [f"state {snapshot.state}"]
        if (cpus := cpus_used(snapshot)) is not None:
            parts.append(f"{cpus:.2f} CPUs used")
        if (moved := bytes_moved_per_second(snapshot)) is not None:
            parts.append(f"{moved / 1e6:.1f} MB/s read or written")
        if snapshot.wait_channel and snapshot.wait_channel != "0":
            parts.append(f"kernel function {snapshot.wait_channel}")
        return f"pid {snapshot.pid} on {snapshot.host} over {snapshot.seconds or 0.5:.1f} s: " + ", ".join(
            parts or ["nothing known"]
        )


_BASES = {
    "exchanges": "the exchanges that each rank counts",
    "calls": "the calls counted in Python",
    "phase": "what each rank says it is at",
    "stacks": "their stacks",
    "steps": "their step counts",
    "start": "who has come to the rendezvous",
}
_OPERATIONS = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}


def words_of_basis(still: Stall) -> str:
    """What the order of arrival is known from, in words."""
    return (
        name_of_recorder(still.recorder) if still.basis == "flight recorder" else _BASES.get(still.basis, still.basis)
    )


def late_ranks(case: Case) -> Iterator[LaggingRank]:
    """Every late rank that still runs and was inspected, but for those that have come and whose device has not."""
    still = case.stall
    if still is None:
        return
    for rank in _running(case, still.late):
        if rank in still.behind:
            continue
        snapshot = case.snapshots.get(rank)
        if snapshot is not None:
            since = still.places.get(rank)
            in_place = max(0.0, (snapshot.at_ns - since[1]) / 1e9) if since is not None else 0.0
            signs = signs_of_progress(snapshot, unchanging=in_place >= UNCHANGING_SECONDS)
            if not signs and still.progress == ("its counters move",) and not cannot_move(snapshot):
                signs = still.progress
            heartbeat = case.heartbeats.get(rank)
            backend = None if heartbeat is None else heartbeat.rendezvous.get("backend")
            yield LaggingRank(snapshot, still, signs, in_place, case.lasts, backend)


UNSEEN_DEVICE = (
    "its collectives are of a device, and no flight recorder shows them: the line may wait for one, as the others do"
)
"""What is said of a rank that `may_wait_for_device`."""


def need_snapshots(case: Case) -> None:
    """A rule calls this after it has judged the inspected ranks.

    Raises:  Unknown: a late rank was not inspected
    """
    still = case.stall
    unseen = (
        [rank for rank in _running(case, still.late) if rank not in case.snapshots and rank not in still.behind]
        if still is not None
        else []
    )
    if unseen:
        raise Unknown(f"a snapshot of {named_ranks(unseen)}")


def need_stacks(late: Iterable[LaggingRank]) -> None:
    """Raises Unknown for the first of these ranks whose Python stack could not be read, with the reason."""
    for one in late:
        if not one.frames:
            why = next((text for text in one.snapshot.not_judged if "stack" in text.lower()), "")
            raise Unknown(f"the stack of rank {one.rank}" + (f": {why}" if why else ""))


def _running(case: Case, ranks: Iterable[int]) -> list[int]:
    """The late ranks that ran when the stall was seen; a later end does not change it."""
    still = case.stall
    ended = {exit.rank for exit in case.exits if still is None or exit.time_ns < still.detected_ns}
    return [
        rank
        for rank in ranks
        if rank not in ended and (rank not in case.heartbeats or case.heartbeats[rank].exit_code is None)
    ]


def _is_held(snapshot: RankSnapshot) -> bool:
    """Whether it is alive and uses no CPU, but its Python does not run: a thread holds the interpreter's lock."""
    if uses_a_cpu(snapshot) or is_waiting_in_collective(snapshot):
        return False
    held = gil_is_held(snapshot)
    return held is True or (held is None and snapshot.ping_answers is True and snapshot.traceback_answers is False)
