"""The state of this process as a rank: its ring, its counters, its steps. All instruments of a process write through one `RankRecorder`."""

import ctypes
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from sys import _getframe, maxsize
from threading import _active as _known_threads  # type: ignore[attr-defined]
from threading import _DummyThread, get_ident
from time import monotonic_ns, time_ns
from types import FrameType
from typing import Any

from ..backend_names import waits_on_device
from ..recording.ring import (
    CAPACITY,
    COMMUNICATION_MEASURED,
    FIRST_RECORD_CELL,
    UNKNOWN,
    Basis,
    Cell,
    Instrument,
    RankPhase,
    RecordKind,
    RingWriter,
)
from .call_log import CallLog
from .registry import Registry
from .signal_handlers import let_through

# A shorter wait only counts in the totals. This limits the cost of a step with hundreds of collectives.
RECORDED_WAIT_NS = 200_000
_NOBODY = 0
_NO_COLLECTIVE = (0, 0, 0, 0)
_MOST_LOADERS = 64
# The step count below which nobody can tell which optimizers step together.
_ALONE_STEPS = 2
_NEVER = maxsize
# The batch size is that of the loader of one of these steps.
_FIRST_STEPS = 16
# Plain numbers for the code of every step and every wait: looking up an enum member costs as much as writing the cell.
_STEP, _COLLECTIVE = int(RecordKind.STEP), int(RecordKind.COLLECTIVE)
_PHASE, _PHASE_SINCE_NS, _TRAINING, _COMMUNICATION = (
    int(Cell.PHASE),
    int(Cell.PHASE_SINCE_NS),
    int(RankPhase.TRAINING),
    int(RankPhase.COMMUNICATION),
)
_STEP_COUNT, _LAST_STEP_NS, _STEP_TOTAL = int(Cell.STEP_COUNT), int(Cell.LAST_STEP_NS), int(Cell.STEP_TOTAL_NS)
_DATA_TOTAL, _COMMUNICATION_TOTAL = int(Cell.DATA_TOTAL_NS), int(Cell.COMMUNICATION_TOTAL_NS)
_CURSOR = int(Cell.CURSOR)

_PR_SET_PTRACER = 0x59616D61


def allow_agent() -> None:
    """Allow the agent to trace this process (Yama, ptrace_scope 1). Without Yama nothing changes.

    Source:  prctl(2), PR_SET_PTRACER; the permission includes the agent's children
    """
    agent = os.environ.get("PACELINE_AGENT_PID", "")
    if agent.isdigit():
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(agent)), 0, 0, 0)


class RankRecorder:
    """The state of one process. Without a ring every method returns at once. A forked child starts over without a ring."""

    __slots__ = (
        "_also_stepped",
        "_due",
        "_first_stepped",
        "_known_optimizers",
        "_loader_began",
        "_newcomer",
        "basis",
        "batch_sizes",
        "boundary_ns",
        "busy",
        "calls",
        "checkpoint_ns",
        "collective_bytes",
        "collective_count",
        "communication_ns",
        "data_ns",
        "environment_changed",
        "failures",
        "has_several_optimizers",
        "held_ns",
        "loader",
        "loader_lengths",
        "marked",
        "missing",
        "next_due",
        "not_a_rank",
        "number",
        "off",
        "pending",
        "preparing",
        "registry",
        "ring",
        "samples_ddp",
        "silent",
        "step_count",
        "step_word",
        "thread",
        "unsaid",
    )  # fmt: skip

    def __init__(self) -> None:
        self.failures: list[str] = []
        # Names of instruments: those that lack something in this torch, those that were dropped, those that PACELINE_OFF turned off.
        self.missing: set[str] = set()
        self.silent: set[str] = set()
        self.off: set[str] = set()
        self.registry = Registry(self.drop)
        self.basis = Basis(0)
        self.calls = CallLog()
        # The script set or deleted a variable before it imported torch.
        self.environment_changed = False
        self.forget()

    def forget(self) -> None:
        """Drop everything inherited. A forked child does this first."""
        ring = getattr(self, "ring", None)
        self.ring: RingWriter | None = None
        self.number: int | None = None
        # The child of a rank is a rank only if it joins a process group itself.
        self.not_a_rank = ring is not None or getattr(self, "not_a_rank", False)
        # The time that DDP exchanges in C++ in one step, from the latest sample.
        self.held_ns = 0
        # A model is wrapped whose exchange is only sampled.
        self.samples_ddp = False
        # The kind and the code of the record of a step.
        self.step_word = _STEP
        # The instruments that want to be called, and at which step count; and the lowest of these counts.
        self._due: dict[str, int] = {}
        self.next_due = _NEVER
        # The thread that trains. Waits of other threads (pin memory, prefetch, asynchronous saving) do not delay the training.
        self.thread = get_ident()
        self.busy = _NOBODY
        self.data_ns = self.communication_ns = self.checkpoint_ns = 0
        self.step_count = 0
        self.boundary_ns = 0
        # `preparing`: no backward pass has begun yet. `marked`: a batch or a forward pass has begun the first step.
        self.preparing, self.marked = True, False
        self.collective_count = self.collective_bytes = 0
        self.pending: dict[int, tuple[int, int, int, int]] = {}
        self.calls = CallLog()
        # Topic and text of what is to be said once there is a ring.
        self.unsaid: list[tuple[str, str]] = []
        # The id of the DataLoader iterator that gave the last batch; how many batches each iterator has; the step at which it began.
        self.loader = _NOBODY
        self.loader_lengths: dict[int, int] = {}
        # The id of an iterator -> samples in one of its batches; 0: not known.
        self.batch_sizes: dict[int, int] = {}
        self._loader_began: dict[int, int] = {}
        self._first_stepped = 0
        self._also_stepped: set[int] = set()
        # Keyed by ids, which Python gives to other objects when these are freed.
        self._known_optimizers: dict[int, weakref.ref[Any]] = {}
        self._newcomer: tuple[int, int, int, int, int, int] | None = None
        self.has_several_optimizers = False
        if ring is not None:
            try:
                ring.drop()
            except Exception as error:
                self.note_failure(error, "fork")
        self.registry.tell("begin")

    # -- becoming a rank

    def join(self, number: int, world_size: int | None, local_rank: int | None) -> None:
        """Open the ring as this rank, or correct the identity in an open ring.

        Raises:  OSError, KeyError: the agent's directory does not exist
        """
        if self.ring is None:
            self._open(number)
        assert self.ring is not None
        self.number = number
        cells = self.ring.cells
        cells[Cell.RANK] = number
        cells[Cell.WORLD_SIZE] = UNKNOWN if world_size is None else world_size
        cells[Cell.LOCAL_RANK] = UNKNOWN if local_rank is None else local_rank

    def _open(self, number: int) -> None:
        attempt = int(os.environ.get("PACELINE_ATTEMPT") or 0)
        ring = RingWriter(Path(os.environ["PACELINE_RING_DIR"]) / f"{attempt}-{os.getpid()}.ring")
        self.thread = get_ident()
        cells = ring.cells
        cells[Cell.PID] = os.getpid()
        cells[Cell.RANK] = number
        cells[Cell.ATTEMPT] = attempt
        cells[Cell.LEFT_BY] = 1
        cells[Cell.START_NS] = cells[Cell.PHASE_SINCE_NS] = time_ns()
        cells[Cell.ENVIRONMENT_CHANGED] = int(self.environment_changed)
        ring.text("host", os.environ.get("PACELINE_HOST", ""))
        ring.text("run_id", os.environ.get("PACELINE_RUN_ID", ""))
        if not self.marked:
            self.boundary_ns = monotonic_ns()
        self.ring = ring
        self._claim(str(number))
        self.publish_state()
        try:
            allow_agent()
        except Exception as error:
            self.note_failure(error, "ptrace")
        for topic, text in self.unsaid:
            self.calls.notice(ring, topic, text)
        self.registry.tell("ring_opened")

    def _join_alone(self) -> RingWriter | None:
        """Open the ring at a step without a process group: the first process of a worker to get here is the rank that the agent started."""
        if self.not_a_rank:
            return None
        self.not_a_rank = True
        rank = os.environ.get("RANK", "")
        # The agent gives every worker its own session, so the session's leader is the process that the agent started.
        if not rank.isdigit() or not (os.getsid(0) == os.getpid() or self._claim(rank)):
            return None
        world, local = os.environ.get("WORLD_SIZE", ""), os.environ.get("LOCAL_RANK", "")
        self.join(int(rank), int(world) if world.isdigit() else None, int(local) if local.isdigit() else None)
        self.not_a_rank = False
        return self.ring

    @staticmethod
    def _claim(rank: str) -> bool:
        name = f"{os.environ.get('PACELINE_ATTEMPT') or 0}-rank{rank}.claim"
        try:
            os.close(os.open(Path(os.environ["PACELINE_RING_DIR"]) / name, os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            return False
        return True

    def joined_group(self, backend: str, duration_ns: int) -> None:
        """The rendezvous is complete: note what the duration of a wait means for this backend."""
        assert self.ring is not None
        is_first = not self.ring.cells[Cell.GROUP_COUNT]
        if not self.step_count and (is_first or not self.marked):
            self.first_step_begins()
            # A batch or a pass before the first rendezvous was not part of the training.
            self.preparing, self.marked = True, False
        self.ring.cells[Cell.GROUP_COUNT] += 1
        self.record_phase(RankPhase.RENDEZVOUS, duration_ns)
        self.phase(RankPhase.TRAINING if self.step_count else RankPhase.STARTING)
        self.rests_on(Basis.DEVICE_WAITS_UNSEEN if waits_on_device(backend) else Basis.WAITS_TIMED)

    def describe_rendezvous(self, given: dict[str, Any]) -> None:
        """Write into the ring what this process brings to the rendezvous. If that fails, the rank is still watched.

        given: the arguments of init_process_group by name
        """
        from . import rendezvous_identity

        try:
            if self.ring is not None:
                cells = self.ring.cells
                numbers = (None if cells[cell] == UNKNOWN else cells[cell] for cell in (Cell.RANK, Cell.WORLD_SIZE))
                self.ring.text("rendezvous", rendezvous_identity.identity(given, *numbers))
        except OSError as error:
            self.note_failure(error, "identity")

    def meets_cluster(self) -> None:
        """TensorFlow's runtime starts and waits for the other processes of its cluster."""
        if (self.ring or self._join_alone()) is not None:
            self.describe_rendezvous({})
            self.phase(RankPhase.RENDEZVOUS)

    def joined_cluster(self, duration_ns: int) -> None:
        """The processes of TensorFlow's cluster have met."""
        if self.ring is not None:
            self.ring.cells[Cell.GROUP_COUNT] += 1
            self.record_phase(RankPhase.RENDEZVOUS, duration_ns)
            self.phase(RankPhase.TRAINING if self.step_count else RankPhase.STARTING)

    # -- what failed and what is not there

    def drop(self, name: str, error: BaseException) -> None:
        """An instrument raised: it is not called any more, and the ring says so once.

        Raises:  `error` itself, if a signal arrived while the instrument was at work and the user's handler raised it
        """
        let_through(error)
        if name not in self.silent:
            self.silent.add(name)
            self.registry.remove(name)
            self.note_failure(error, name.upper())

    def notice(self, topic: str, text: str) -> None:
        """Write a notice for the user, on the run's terminal and in its recording: now, or once this process is a rank.

        Raises:  as `note_failure`
        """
        try:
            if self.ring is None:
                self.unsaid.append((topic, text))
            else:
                self.calls.notice(self.ring, topic, text)
        except Exception as error:
            self.note_failure(error, topic)

    def lacks(self, name: str) -> None:
        """This torch lacks what the instrument needs: findings that depend on the instrument are not judged."""
        self.missing.add(name)
        self.publish_state()

    def note_failure(self, error: BaseException, where: str = "patch") -> None:
        """Note an error that was caught.

        Raises:  `error` itself, if a signal arrived meanwhile and the user's handler raised it
        """
        let_through(error)
        self.failures.append(f"{where}: {type(error).__name__}: {error}")
        self.publish_state()

    def rests_on(self, basis: Basis) -> None:
        if basis not in self.basis:
            self.basis |= basis
            self.publish_state()

    def publish_state(self) -> None:
        """Write the masks and the failures into the header. Without a ring they are kept until there is one."""
        ring = self.ring
        self.step_word = _STEP | (COMMUNICATION_MEASURED << 32 if self._times_all_waits() else 0)
        if ring is None:
            return
        try:
            ring.cells[Cell.MISSING] = _mask(self.missing)
            ring.cells[Cell.DROPPED_INSTRUMENTS] = _mask(self.silent)
            ring.cells[Cell.TURNED_OFF] = _mask(self.off)
            ring.cells[Cell.COMMUNICATION_BASIS] = self.basis
            ring.text("failure", "; ".join(self.failures))
        except Exception as error:
            # If the ring cannot be written, the failure cannot be written into it either.
            let_through(error)

    def _times_all_waits(self) -> bool:
        unseen = {"waits"} & (self.missing | self.silent | self.off)
        is_timed = Basis.WAITS_TIMED in self.basis and Basis.DEVICE_WAITS_UNSEEN not in self.basis
        return is_timed and not unseen and not self.samples_ddp

    # -- waits

    def begin(self, phase: int, instrument: str) -> int:
        """Start of a wait in monotonic ns; 0 if the wait does not count: no ring, inside another wait, or not in the training thread.

        Never raises: an exception drops the instrument.
        """
        ring = self.ring
        if ring is None or self.busy or instrument in self.silent:
            return 0
        try:
            ident = get_ident()
            if ident != self.thread and (phase != _COMMUNICATION or not _is_foreign(ident)):
                return 0
            self.busy = phase
            cells = ring.cells
            cells[_PHASE] = phase
            cells[_PHASE_SINCE_NS] = time_ns()
            return monotonic_ns()
        except Exception as error:
            self.drop(instrument, error)
            return 0

    def end(self, start_ns: int, instrument: str) -> int:
        """End of the wait that `begin` started; returns its length in ns. Never raises."""
        try:
            duration_ns = monotonic_ns() - start_ns
            self.busy = _NOBODY
            ring = self.ring
            if ring is None:
                return 0
            ring.cells[_PHASE] = _TRAINING
            return duration_ns
        except Exception as error:
            self.drop(instrument, error)
            return 0

    def phase(self, phase: int) -> None:
        if self.ring is not None:
            self.ring.cells[Cell.PHASE] = phase
            self.ring.cells[Cell.PHASE_SINCE_NS] = time_ns()

    def record_phase(self, phase: int, duration_ns: int) -> None:
        if self.ring is not None:
            self.ring.write(RecordKind.PHASE, phase, time_ns() - duration_ns, duration_ns)

    def batch_is_asked_for(self, loader: int) -> None:
        """Before the first backward pass: the first step begins with a loader's first batch. Of several loaders, the newest counts."""
        if loader != self.loader:
            self.first_step_begins()

    def loader_begins(self, loader: int) -> None:
        """An iterator over a DataLoader starts, or starts again."""
        if len(self._loader_began) > _MOST_LOADERS:
            self._loader_began.clear()
            self.loader_lengths.clear()
            self.batch_sizes.clear()
        self._loader_began[loader] = self.step_count

    def loader_ran_out(self, loader: int) -> None:
        """The loader has no more batches. This is noted if the loader fed steps, not if it fed an evaluation. Never raises."""
        try:
            if self.ring is not None and self.step_count > self._loader_began.get(loader, self.step_count):
                self.ring.cells[Cell.RAN_OUT_STEPS] = self.step_count
                self.ring.cells[Cell.RAN_OUT_BATCHES] = self.ring.cells[Cell.BATCHES_TAKEN]
                self.registry.tell("loader_ran_out")
        except Exception as error:
            self.drop("data", error)

    def forward_begins(self) -> None:
        """The first forward pass of a wrapped module begins the first step, unless a batch already began it."""
        if self.preparing and not self.marked:
            self.first_step_begins()

    def backward_begins(self) -> None:
        """The first backward pass: after it, nothing changes the beginning of the first step."""
        self.forward_begins()
        self.preparing = False

    def first_step_begins(self) -> None:
        """The first step begins now: what the script did before belongs to no step."""
        self.marked = True
        if self.ring is not None:
            self.ring.cells[Cell.CHECKPOINT_OUTSIDE_NS] += self.checkpoint_ns
        self.data_ns = self.communication_ns = self.checkpoint_ns = 0
        self.boundary_ns = monotonic_ns()

    # -- collectives

    def waited(self, work: object, duration_ns: int) -> None:
        """A collective delayed the training. A long wait also gets a record of its own. Never raises."""
        try:
            self.communication_ns += duration_ns
            operation, count, size_bytes, group = self.pending.pop(id(work), _NO_COLLECTIVE)
            if duration_ns >= RECORDED_WAIT_NS and self.ring is not None:
                self.ring.write(_COLLECTIVE, operation, count, time_ns() - duration_ns, duration_ns, size_bytes, group)
        except Exception as error:
            self.drop("waits", error)

    def saved(self, duration_ns: int) -> None:
        """A checkpoint was written. Never raises."""
        try:
            self.checkpoint_ns += duration_ns
            self.record_phase(RankPhase.CHECKPOINT, duration_ns)
            if self.ring is not None:
                self.ring.cells[Cell.SAVED_STEPS] = self.step_count
        except Exception as error:
            self.drop("checkpoint", error)

    # -- steps

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """torch's hook, called after every optimizer's step. Never raises.

        A step ends when an optimizer steps again after the last end. Steps of other optimizers belong to the same step (`_is_joined`).
        This is one function with few names: between two steps the caches are cold, and every call and every name costs a fraction of a µs.
        """
        if "steps" in self.silent:
            return
        try:
            ring = self.ring or self._join_alone()
            if ring is None:
                return
            key = id(optimizer)
            if key != self._first_stepped or self._also_stepped:
                if self._is_joined(optimizer):
                    return
                self._begin_turn(optimizer)
            now_ns, end_ns = monotonic_ns(), time_ns()
            duration_ns = now_ns - self.boundary_ns
            self.boundary_ns = now_ns
            self.step_count = count = self.step_count + 1
            data_ns, communication_ns = self.data_ns, self.communication_ns
            self.data_ns = self.communication_ns = 0
            if count >= self.next_due:
                self._call_due(count, optimizer, _getframe(1))
            communication_ns += self.held_ns
            checkpoint_ns = self.checkpoint_ns
            if communication_ns + data_ns + checkpoint_ns > duration_ns:
                # The sampled exposed communication is longer than the rest of this step.
                communication_ns = max(0, duration_ns - data_ns - checkpoint_ns)
            cells = ring.cells
            # This is `RingWriter.write` inlined.
            index = ring.next_index()
            at = FIRST_RECORD_CELL + index % CAPACITY * 8
            cells[at + 1] = cells[_STEP_COUNT] = count
            cells[at + 2] = cells[_LAST_STEP_NS] = end_ns
            cells[at + 3] = duration_ns
            cells[at + 4] = data_ns
            cells[at + 5] = communication_ns
            cells[at + 6] = checkpoint_ns
            cells[at + 7] = self.collective_count
            cells[at] = self.step_word | (index & 0xFFFF) << 16
            cells[_CURSOR] = index + 1
            cells[_STEP_TOTAL] += duration_ns
            cells[_DATA_TOTAL] += data_ns
            cells[_COMMUNICATION_TOTAL] += communication_ns
            if checkpoint_ns or count == 1 or not count & 15:
                self._seldom(end_ns)
        except Exception as error:
            self.drop("steps", error)

    def _is_joined(self, optimizer: Any) -> bool:
        """Whether an optimizer's step belongs to the step that another optimizer has begun, as in a GAN.

        A new optimizer that replaces the old one looks the same, until it steps again before the old one does. Until then, the time of its
        first step is kept.
        """
        key = id(optimizer)
        if self._first_stepped in (_NOBODY, key) or key in self._also_stepped:
            return False
        is_new = key not in self._known_optimizers or self._known_optimizers[key]() is not optimizer
        if is_new and self._newcomer is None and self.step_count >= _ALONE_STEPS:
            waits = self.data_ns, self.communication_ns, self.checkpoint_ns
            self._newcomer = (key, monotonic_ns(), time_ns(), *waits)
        self._known_optimizers[key] = weakref.ref(optimizer)
        self._also_stepped.add(key)
        self.has_several_optimizers = True
        return True

    def _begin_turn(self, optimizer: Any) -> None:
        """An optimizer ends a step in which other optimizers have stepped, or has replaced them."""
        key = id(optimizer)
        if self._newcomer is not None and self._newcomer[0] == key:
            self._count_first_step_of_newcomer(*self._newcomer[1:])
        self._newcomer = None
        self._first_stepped = key
        self._known_optimizers[key] = weakref.ref(optimizer)
        self._also_stepped.clear()

    def _count_first_step_of_newcomer(
        self, now_ns: int, end_ns: int, data_ns: int, communication_ns: int, checkpoint_ns: int
    ) -> None:
        """Count the newcomer's first step after all. It ended when the newcomer first stepped. Waits since then belong to the next step."""
        assert self.ring is not None
        duration_ns, self.boundary_ns = now_ns - self.boundary_ns, now_ns
        self.step_count = count = self.step_count + 1
        self.data_ns -= data_ns
        self.communication_ns -= communication_ns
        self.checkpoint_ns -= checkpoint_ns
        exchanged_ns = max(0, min(communication_ns + self.held_ns, duration_ns - data_ns - checkpoint_ns))
        waits = data_ns, exchanged_ns, checkpoint_ns
        self.ring.write(_STEP, self.step_word >> 32, count, end_ns, duration_ns, *waits, self.collective_count)
        cells = self.ring.cells
        cells[_STEP_TOTAL] += duration_ns
        cells[_DATA_TOTAL] += data_ns
        cells[_COMMUNICATION_TOTAL] += exchanged_ns
        cells[Cell.CHECKPOINT_TOTAL_NS] += checkpoint_ns

    def _seldom(self, end_ns: int) -> None:
        """Write the header cells that need not be up to date after every step."""
        assert self.ring is not None
        cells = self.ring.cells
        cells[Cell.COLLECTIVE_COUNT] = self.collective_count
        cells[Cell.COLLECTIVE_BYTES] = self.collective_bytes
        cells[Cell.CHECKPOINT_TOTAL_NS] += self.checkpoint_ns
        cells[Cell.LOADER_BATCHES] = self.loader_lengths.get(self.loader, 0)
        if self.step_count <= _FIRST_STEPS:
            # A rank without a process group opens its ring at its first step, and then knows of no loader yet.
            cells[Cell.BATCH_SIZE] = self.batch_sizes.get(self.loader, 0)
        self.checkpoint_ns = 0
        if get_ident() == self.thread:
            # No wait lasts beyond the end of a step. If a signal handler cut off the end of a wait, that wait would hide all later ones.
            self.busy = _NOBODY
        if self.step_count == 1:
            self.preparing = False
            cells[Cell.FIRST_STEP_NS] = end_ns
            self.thread = get_ident()
            self.phase(RankPhase.TRAINING)

    def call_at(self, step: int, name: str) -> None:
        """Ask for a call of an instrument's `at_step` when this many steps are made. This replaces the instrument's earlier request.

        A step at which no instrument is due costs one comparison, however many instruments there are.
        """
        self._due[name] = step
        self.next_due = min(self._due.values())

    def call_nobody(self) -> None:
        """Forget every request of `call_at`."""
        self._due, self.next_due = {}, _NEVER

    def _call_due(self, count: int, optimizer: Any, frame: FrameType) -> None:
        due = sorted(name for name, step in self._due.items() if step <= count)
        self._due = {name: step for name, step in self._due.items() if step > count}
        self.next_due = min(self._due.values(), default=_NEVER)
        for name in due:
            self.registry.tell_one(name, "at_step", count, optimizer, frame)

    def leave(self) -> None:
        """Write into the header what no finished step has written there."""
        if self.ring is not None:
            cells = self.ring.cells
            cells[Cell.CHECKPOINT_OUTSIDE_NS] += self.checkpoint_ns
            cells[Cell.COLLECTIVE_COUNT] = self.collective_count
            cells[Cell.COLLECTIVE_BYTES] = self.collective_bytes


def _mask(names: Iterable[str]) -> Instrument:
    """The mask of the members with these names. An instrument that the recording does not know has no member."""
    mask = Instrument(0)
    for name in names:
        mask |= Instrument.__members__.get(name.upper(), Instrument(0))
    return mask


def _is_foreign(ident: int) -> bool:
    """Whether this thread was not started by Python: it is one of autograd's, and the training thread stands still while it works."""
    thread = _known_threads.get(ident)
    # Any log line in such a thread registers the thread with Python as a dummy thread.
    return thread is None or isinstance(thread, _DummyThread)


this_rank = RankRecorder()
