"""The ring that a rank writes and its agent drains: mapped memory of one process. Standard library only.

The memory has no name, and its size is sealed: if the job's own cleaner cut it off, the next write would end the rank with SIGBUS. It is
handed to the agent over a socket. Without an agent that listens, or where the kernel has no such memory, it is a file.

    bytes 0 to 4095    header: up to 96 cells of 8 bytes (see `Cell`), texts (`TEXTS`), the table of exchanges (exchanges.py)
    bytes 4096 to end  records of 64 bytes, record i in slot i % capacity

One process writes and never waits: a record overwrites the oldest one, and `RingReader.drain` counts the records that it missed.
Each record has the low 16 bits of its own index, so that a reader detects a slot that was overwritten while it was read. The
pages belong to the kernel, so what a rank wrote outlives SIGKILL. A segment is the same two parts as an ordinary file: the latest
header page, then every record that was drained, in order.
"""

import _socket
import fcntl
import itertools
import os
import struct
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

from ..mapped_memory import map_shared
from .exchanges import ExchangeRow, parse_table
from .plain_files import open_plain

MAGIC = int.from_bytes(b"PACERING", "little")
VERSION = 1
HEADER_BYTES = 4096
RECORD_BYTES = 64
FIRST_RECORD_CELL = HEADER_BYTES // 8
CAPACITY = 8192
UNKNOWN = 2**64 - 1
RECORD = struct.Struct("<HHI7Q")
TEXTS = {
    "failure": (1024, 512),
    "host": (1536, 256),
    "run_id": (1792, 64),
    "loaded_file": (1856, 192),
    "left_at": (768, 256),
    "rendezvous": (2048, 1024),
}


class Cell(IntEnum):
    """Index of each 8-byte cell of the header. New ones go at the end; a changed meaning is a new VERSION."""

    MAGIC = 0
    VERSION = 1
    CAPACITY = 2
    PID = 3
    RANK = 4
    WORLD_SIZE = 5
    LOCAL_RANK = 6
    ATTEMPT = 7
    START_NS = 8
    STEP_COUNT = 9
    FIRST_STEP_NS = 10
    LAST_STEP_NS = 11
    STEP_TOTAL_NS = 12
    DATA_TOTAL_NS = 13
    COMMUNICATION_TOTAL_NS = 14
    CHECKPOINT_TOTAL_NS = 15
    COLLECTIVE_COUNT = 16
    COLLECTIVE_BYTES = 17
    PHASE = 18
    PHASE_SINCE_NS = 19
    CURSOR = 20
    RESERVED_21 = 21
    EXIT_STATE = 22
    EXIT_CODE = 23
    EXIT_CODE_KNOWN = 24
    EXIT_NS = 25
    MISSING = 26
    DROPPED_INSTRUMENTS = 27
    GROUP_COUNT = 28
    COMMUNICATION_BASIS = 29
    LOST_AT_READER = 30
    WORKER_SERVER = 31
    CHECKPOINT_OUTSIDE_NS = 32
    BATCHES_TAKEN = 48
    LEFT_BY = 49  # 0 nothing was noted, 1 no last words so far, 2 the program's end, 3 a call of sys.exit
    # When the main thread reached the end of the script; from then on its interpreter gets no requests.
    LEAVING_NS = 56
    TURNED_OFF = 57  # a mask of instruments, by PACELINE_OFF
    # When the last thread that Python waits for was done; from then on only exit handlers and destructors run.
    FINALIZING_NS = 58
    LOADER_BATCHES = 33
    # When a DataLoader that feeds steps last had no more batches: steps made and batches taken by then.
    RAN_OUT_STEPS = 59
    RAN_OUT_BATCHES = 60
    LOADED = (
        61  # what the script loaded before its first step: a member of Loaded, or the newest file's time in Unix ns
    )
    SAVED_STEPS = 62  # finished steps when the newest checkpoint was written
    ENVIRONMENT_CHANGED = 63  # 1: the script changed its environment before it imported torch
    BATCH_SIZE = 64  # samples in a batch of the loader of the first steps; 0: not known
    # Before the first step: 1: an optimizer was given a state that is not empty; parameters of modules that were given a state, and those
    # of them that the state had.
    OPTIMIZER_LOADED = 65
    PARAMETERS_ASKED = 66
    PARAMETERS_LOADED = 67


class Loaded(IntEnum):
    """Values of Cell.LOADED that are no time."""

    UNSEEN = 0  # nobody looked
    NOTHING = 1
    UNKNOWN = 2  # a module was given a state, which may come from a file or from another module


class RankPhase(IntEnum):
    """What the rank's own thread is doing, as far as the instruments see it."""

    STARTING = 0
    RENDEZVOUS = 1
    TRAINING = 2
    DATA = 3
    COMMUNICATION = 4
    CHECKPOINT = 5
    WRAPPING = 6
    EXITING = 7


class RecordKind(IntEnum):
    """Kind of a record, and the order of its seven values."""

    STEP = 1  # index, end ns, duration, data, communication, checkpoint, collectives so far; code: see COMMUNICATION_MEASURED
    COLLECTIVE = 2  # sequence number, start ns, time waited, bytes, group; code: index in OPERATIONS
    PHASE = 3  # start ns, duration; code: a Phase
    CALL = 4  # index in its group, issued ns, group, signature, site (string_table.py), bytes, collectives so far; code: as COLLECTIVE
    EXCHANGE = 5  # sequence number, entered ns, group, elements, index in DTYPES; code: as COLLECTIVE


# A bit of a STEP's code: its communication was timed in this very step. Without it, the time may be that of an earlier sample (DDP), or
# none of a device; and a recording from before has it in no step.
COMMUNICATION_MEASURED = 1


class Instrument(IntFlag):
    """The instruments that observe a rank.

    The header has three masks: the instruments that this torch lacks, that failed and were dropped, and that are off.
    """

    STEPS = 1
    DATA = 2
    WAITS = 4
    COLLECTIVES = 8
    DDP = 16
    CHECKPOINT = 32
    WORKER_SERVER = 64
    FLIGHT_RECORDER = 128
    EXIT = 256
    GROUPS = 512
    EXCHANGES = 1024
    REPLICA = 2048
    TENSORFLOW = 4096


class Basis(IntFlag):
    """The basis of a rank's communication time. Without one of the first two bits, that part of it was not judged."""

    WAITS_TIMED = 1
    DDP_SAMPLED = 2
    DEVICE_WAITS_UNSEEN = 4
    STEPS_BY_CALL = 8
    """A step is a call of a traced function of TensorFlow."""
    STEPS_BY_BATCH = 16
    """A step is a batch on which Keras has trained on JAX."""
    STEPS_BY_SCRIPT = 32
    """A step is a call of `paceline.step()`."""


# Only appended to: a recording refers to an operation by its index here.
OPERATIONS = (
    "unknown", "allreduce", "broadcast", "reduce", "allgather", "gather", "scatter", "reduce_scatter", "alltoall", "barrier",
    "monitored_barrier", "send", "recv", "recv_anysource", "allreduce_coalesced", "allgather_coalesced", "_allgather_base",
    "_reduce_scatter_base", "alltoall_base", "allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced",
    "all_gather_single", "reduce_scatter_single", "all_to_all_single", "all_gather_single_coalesced",
    "reduce_scatter_single_coalesced",
)  # fmt: skip


class NotARing(ValueError):
    """The file is no ring or segment, is shorter than a header, or has a version that this paceline does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingHeader:
    """What a rank has written about itself, at the moment the header was read. None: the rank never wrote it.

    Holds:   data_total_ns + communication_total_ns + checkpoint_total_ns <= step_total_ns: the four are of finished steps, so the
             rest is compute
    """

    pid: int
    """Process id of the rank."""
    rank: int
    """Global rank."""
    world_size: int | None
    """Number of ranks of the job."""
    local_rank: int | None
    """Rank on its own host."""
    attempt: int
    """Attempt that the rank belongs to."""
    start_ns: int
    """When the process opened its ring, Unix time."""
    step_count: int
    """Finished steps."""
    first_step_ns: int | None
    """When the first step began, Unix time."""
    last_step_ns: int | None
    """When the newest step ended, Unix time."""
    step_total_ns: int
    """Total duration of all finished steps."""
    data_total_ns: int
    """Their time inside the DataLoader's `next`."""
    communication_total_ns: int
    """Their exposed communication."""
    checkpoint_total_ns: int
    """Their time of saving checkpoints."""
    checkpoint_outside_ns: int
    """Time of saving checkpoints before the first step and since the newest step."""
    collective_count: int
    """Collectives so far."""
    collective_bytes: int
    """Bytes of these collectives."""
    phase: RankPhase
    """What the rank's own thread does now."""
    phase_since_ns: int
    """When that phase began. TRAINING does not restart it."""
    cursor: int
    """Number of records written so far."""
    capacity: int
    """Number of records that the ring holds."""
    lost_count: int
    """Records that were overwritten before the reader took them."""
    leaving_ns: int | None
    """When the main thread was done. Threads of the script may still train."""
    finalizing_ns: int | None
    """When its other threads were done as well. Its exit handlers run, and it trains no more."""
    exiting: bool
    """The rank has come to its exit handler."""
    exit_code: int | None
    """Exit code that the script passed to `sys.exit`."""
    exit_ns: int | None
    """When the rank came to its exit handler."""
    missing: Instrument
    """Instruments that this torch does not support."""
    dropped_instruments: Instrument
    """Instruments that failed and were dropped."""
    turned_off: Instrument
    """Instruments that PACELINE_OFF turns off."""
    group_count: int
    """Process groups that the rank has made."""
    communication_basis: Basis
    """What the communication time rests on."""
    worker_server: bool
    """Torch's worker server runs in the rank."""
    loader_batches: int | None
    """Length of the DataLoader whose batches the steps use."""
    batch_size: int | None = None
    """Samples in a batch of the loader of the first steps."""
    failure: str
    """Why instruments failed; "" if none did."""
    host: str
    """Name of the host."""
    run_id: str
    """Id of the run."""
    rendezvous: str = ""
    """What the rank passed to init_process_group: see worker/rendezvous_identity.py."""
    batches_taken: int = 0
    """Batches that the rank has taken from its loader."""
    ran_out_steps: int = 0
    """Finished steps when its loader last had no more batches."""
    ran_out_batches: int = 0
    """Batches taken by then."""
    left_by: int = 0
    """How the program ended: see Cell.LEFT_BY."""
    left_at: str = ""
    """The call that ended it, as "FILE:LINE in FUNCTION, the handler of SIGTERM, by sys.exit(0)"; empty: it is not known."""
    loaded_ns: int | None = None
    """Time of the newest checkpoint that the script loaded before its first step, Unix ns; 0: it loaded nothing."""
    loaded_file: str = ""
    """Path of that checkpoint, or its end."""
    optimizer_loaded: bool = False
    """Before the first step an optimizer was given a state that is not empty."""
    parameters_asked: int = 0
    """Parameters of the modules that were given a state before the first step."""
    parameters_loaded: int = 0
    """Those of them that the state had."""
    saved_steps: int = 0
    """Finished steps when the newest checkpoint was written."""
    environment_changed: bool = False
    """The script changed its environment before it imported torch."""
    exchanges: tuple[ExchangeRow, ...] = ()
    """Groups of paceline's own exchange."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a ring or segment."""

    kind: int
    """A RecordKind."""
    code: int
    """What kind of operation or phase: see RecordKind."""
    values: tuple[int, ...]
    """Seven values in the order that RecordKind gives."""


_CURSOR = int(Cell.CURSOR)


def inbox(ring: Path) -> Path:
    """The socket at which the agent takes the ring with this path: `3.sock` for `3-1234.ring`, of attempt 3."""
    return ring.with_name(ring.name.partition("-")[0] + ".sock")


class RingWriter:
    """The rank's side. `cells` is the header, written by assignment: `ring.cells[Cell.RANK] = 3`.

    Raises:  OSError: the directory is gone, or its disk has no room for the whole ring. The room is reserved at once, because a
             page that cannot be had later would be a SIGBUS in the user's program.
    """

    def __init__(self, path: Path, capacity: int = CAPACITY) -> None:
        self.path = path
        self.capacity = capacity
        self.next_index = itertools.count().__next__
        self._size_bytes = HEADER_BYTES + capacity * RECORD_BYTES
        if not self._hand_over():
            self._make_file()

    def _hand_over(self) -> bool:
        """Make the ring without a name, and give it to the agent. Returns False where that cannot be done."""
        agent = inbox(self.path)
        if not agent.exists():
            return False
        try:
            descriptor = os.memfd_create("paceline-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                self._lay_out(descriptor)
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
                # Not the socket module's: libraries put theirs in its place. Waiting for an agent would be a wait of the script.
                with closing(_socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK)) as socket:
                    socket.connect(os.fspath(agent))
                    rights = struct.pack("i", descriptor)
                    socket.sendmsg([os.fsencode(self.path.name)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            finally:
                os.close(descriptor)
        except (OSError, AttributeError):
            return False
        return True

    def _make_file(self) -> None:
        unfinished = self.path.with_suffix(".new")
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._lay_out(descriptor)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        unfinished.rename(self.path)

    def _lay_out(self, descriptor: int) -> None:
        os.posix_fallocate(descriptor, 0, self._size_bytes)
        self._bytes = map_shared(descriptor, self._size_bytes)
        self.cells = self._bytes.cast("Q")
        self.cells[Cell.VERSION] = VERSION
        self.cells[Cell.CAPACITY] = self.capacity
        for unknown in (Cell.WORLD_SIZE, Cell.LOCAL_RANK):
            self.cells[unknown] = UNKNOWN
        self.cells[Cell.MAGIC] = MAGIC

    def write(
        self, kind: int, code: int, a: int, b: int, c: int = 0, d: int = 0, e: int = 0, f: int = 0, g: int = 0
    ) -> None:
        """Append one record of up to seven values. Never waits: each thread gets a slot of its own.

        Word by word, because between two training steps the caches are cold: this takes a third of the time of `struct.pack_into`.
        """
        cells = self.cells
        index = self.next_index()
        at = FIRST_RECORD_CELL + index % self.capacity * 8
        cells[at + 1] = a
        cells[at + 2] = b
        cells[at + 3] = c
        cells[at + 4] = d
        cells[at + 5] = e
        cells[at + 6] = f
        cells[at + 7] = g
        # Last: until it is there, the slot carries the stamp of the record before it.
        cells[at] = kind | (index & 0xFFFF) << 16 | code << 32
        cells[_CURSOR] = index + 1

    def text(self, name: str, text: str) -> None:
        """Set one of `TEXTS`, cut to its room."""
        offset, room = TEXTS[name]
        raw = text.encode("utf-8", "replace")[: room - 1]
        self._bytes[offset : offset + room] = raw.ljust(room, b"\0")

    def drop(self) -> None:
        """Release the file without writing to it: a forked child must not write for its parent."""
        self.cells.release()
        self._bytes.release()


class RingReader:
    """The agent's side: reads while the rank writes, and also after it died."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        """`descriptor`: what a rank has handed over, from now on this reader's; None: the file at the path.

        Raises:  NotARing; OSError: the file cannot be read
        """
        self._path = path
        # Read and not mapped: if the rank truncates the file, a mapped page would be a SIGBUS in the agent.
        if descriptor is not None:
            self._descriptor = descriptor
        else:
            with open_plain(path) as file:
                self._descriptor = os.dup(file.fileno())
        self._drained = 0
        self.lost_count = 0
        try:
            self._capacity = self.header().capacity
            size = os.fstat(self._descriptor).st_size
            if not 0 < self._capacity * RECORD_BYTES <= size - HEADER_BYTES:
                raise NotARing(f"{path}: shorter than the {self._capacity} records it promises")
        except BaseException:
            self.close()
            raise

    def header(self) -> RingHeader:
        return parse_header(self.page())

    def exchanges(self) -> tuple[ExchangeRow, ...]:
        """The header's table alone."""
        return parse_table(self._read(0, HEADER_BYTES))

    def page(self) -> bytes:
        """The header as bytes, with what this reader itself lost in it."""
        page = bytearray(self._read(0, HEADER_BYTES))
        struct.pack_into("<Q", page, Cell.LOST_AT_READER * 8, self.lost_count)
        return bytes(page)

    def drain(self) -> tuple[bytes, int]:
        """Records written since the last call, as bytes, and how many were overwritten before this call came."""
        records, self._drained, lost = self.read_from(self._drained)
        self.lost_count += lost
        return records, lost

    def read_from(self, position: int) -> tuple[bytes, int, int]:
        """Records from `position` on, the position behind them, and how many were overwritten before this call came."""
        # Two threads of a rank that write at once may set the cursor back by one.
        cursor = max(self._cursor(), position)
        first = max(position, cursor - self._capacity)
        raw = self._slots(first, cursor)
        # The writer may have wrapped around meanwhile; the slot that it will stamp next already has the values of the next record.
        whole = self._cursor() - self._capacity
        kept = [
            raw[at : at + RECORD_BYTES]
            for at, index in zip(range(0, len(raw), RECORD_BYTES), range(first, cursor), strict=True)
            if index > whole and int.from_bytes(raw[at + 2 : at + 4], "little") == index & 0xFFFF
        ]
        return b"".join(kept), cursor, cursor - position - len(kept)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _cursor(self) -> int:
        return int.from_bytes(self._read(Cell.CURSOR * 8, 8), "little")

    def _slots(self, first: int, end: int) -> bytes:
        """Records `first` to `end`, at most the whole ring: one range of the file, or its end and its beginning."""
        begin = first % self._capacity
        count = end - first
        before_the_end = min(count, self._capacity - begin)
        return self._read(HEADER_BYTES + begin * RECORD_BYTES, before_the_end * RECORD_BYTES) + self._read(
            HEADER_BYTES, (count - before_the_end) * RECORD_BYTES
        )

    def _read(self, offset: int, size: int) -> bytes:
        try:
            read = os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise NotARing(f"{self._path}: {error.strerror}") from error
        if len(read) != size:
            raise NotARing(f"{self._path}: cut off at {offset + len(read)} bytes")
        return read


def parse_header(page: bytes) -> RingHeader:
    """Raises NotARing: wrong magic, or a version this paceline does not know."""
    if len(page) < HEADER_BYTES:
        raise NotARing(f"{len(page)} bytes, shorter than a header")
    cells = struct.unpack_from("<128Q", page)
    if cells[Cell.MAGIC] != MAGIC:
        raise NotARing("no ring: the first 8 bytes are not PACERING")
    if cells[Cell.VERSION] != VERSION:
        raise NotARing(f"version {cells[Cell.VERSION]}, and this paceline reads {VERSION}")
    known = bool(cells[Cell.EXIT_CODE_KNOWN])
    return RingHeader(
        pid=cells[Cell.PID],
        rank=cells[Cell.RANK],
        world_size=_known(cells[Cell.WORLD_SIZE]),
        local_rank=_known(cells[Cell.LOCAL_RANK]),
        attempt=cells[Cell.ATTEMPT],
        start_ns=cells[Cell.START_NS],
        step_count=cells[Cell.STEP_COUNT],
        first_step_ns=cells[Cell.FIRST_STEP_NS] or None,
        last_step_ns=cells[Cell.LAST_STEP_NS] or None,
        step_total_ns=cells[Cell.STEP_TOTAL_NS],
        data_total_ns=cells[Cell.DATA_TOTAL_NS],
        communication_total_ns=cells[Cell.COMMUNICATION_TOTAL_NS],
        checkpoint_total_ns=cells[Cell.CHECKPOINT_TOTAL_NS],
        checkpoint_outside_ns=cells[Cell.CHECKPOINT_OUTSIDE_NS],
        collective_count=cells[Cell.COLLECTIVE_COUNT],
        collective_bytes=cells[Cell.COLLECTIVE_BYTES],
        phase=RankPhase(cells[Cell.PHASE]),
        phase_since_ns=cells[Cell.PHASE_SINCE_NS],
        cursor=cells[Cell.CURSOR],
        capacity=cells[Cell.CAPACITY],
        lost_count=cells[Cell.LOST_AT_READER],
        leaving_ns=cells[Cell.LEAVING_NS] or None,
        finalizing_ns=cells[Cell.FINALIZING_NS] or None,
        exiting=bool(cells[Cell.EXIT_STATE]),
        exit_code=cells[Cell.EXIT_CODE] if known else None,
        exit_ns=cells[Cell.EXIT_NS] or None,
        missing=Instrument(cells[Cell.MISSING]),
        dropped_instruments=Instrument(cells[Cell.DROPPED_INSTRUMENTS]),
        turned_off=Instrument(cells[Cell.TURNED_OFF]),
        group_count=cells[Cell.GROUP_COUNT],
        communication_basis=Basis(cells[Cell.COMMUNICATION_BASIS]),
        worker_server=bool(cells[Cell.WORKER_SERVER]),
        batches_taken=cells[Cell.BATCHES_TAKEN],
        ran_out_steps=cells[Cell.RAN_OUT_STEPS],
        ran_out_batches=cells[Cell.RAN_OUT_BATCHES],
        left_by=cells[Cell.LEFT_BY],
        loader_batches=cells[Cell.LOADER_BATCHES] or None,
        batch_size=cells[Cell.BATCH_SIZE] or None,
        loaded_ns=_loaded_ns(cells[Cell.LOADED]),
        optimizer_loaded=bool(cells[Cell.OPTIMIZER_LOADED]),
        parameters_asked=cells[Cell.PARAMETERS_ASKED],
        parameters_loaded=cells[Cell.PARAMETERS_LOADED],
        saved_steps=cells[Cell.SAVED_STEPS],
        environment_changed=bool(cells[Cell.ENVIRONMENT_CHANGED]),
        exchanges=parse_table(page),
        **{name: _text(page, name) for name in TEXTS},
    )


def parse_records(raw: bytes) -> list[Record]:
    """The records of what `drain` returned, or of a segment behind its header."""
    return [Record(kind, code, tuple(values)) for kind, _, code, *values in RECORD.iter_unpack(raw)]


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def _loaded_ns(value: int) -> int | None:
    if value in (Loaded.UNSEEN, Loaded.UNKNOWN):
        return None
    return 0 if value == Loaded.NOTHING else value


def _text(page: bytes, name: str) -> str:
    offset, room = TEXTS[name]
    return page[offset : offset + room].split(b"\0", 1)[0].decode("utf-8", "replace")
