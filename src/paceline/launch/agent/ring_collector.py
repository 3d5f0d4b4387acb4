"""Moves the records in the rings of one attempt's ranks to segment files, and reports the progress of each rank."""

import dataclasses
import os
import socket
import struct
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.crash.rendezvous import brought
from paceline.diagnosis.desync.call_records import CallReader, exchange_counters, exchange_entries
from paceline.diagnosis.desync.calls import RankCalls
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import make_folder, write_plain
from paceline.recording.ring import RecordKind, RingHeader, RingReader, inbox
from paceline.recording.segments import append_records, drained, from_header
from paceline.recording.step_rollups import StepRollups
from paceline.recording.string_table import StringTable

# How many calls of all ranks the coordinator can compare at every poll, and how many calls each rank may always send.
_CALLS_OF_ALL_RANKS, _LEAST_CALLS = 4096, 16
_OUR_BACKENDS = ("paceline", "smddp", "paceline_mpi")
# The size of torch's flight recorder in paceline's ranks.
_EXCHANGES_KEPT = 2000
_LONGEST_NAME = 255


@dataclass(slots=True)
class _Ring:
    """One rank's ring, and how far it was read."""

    reader: RingReader
    """Reads the ring's shared pages."""
    header: RingHeader
    """The newest valid header of the ring."""
    texts: StringTable
    """The names that the ring's records refer to by number."""
    calls: CallReader
    """Converts the ring's records to collectives."""
    segment: BinaryIO | None = None
    """The file in the recording to which records are moved; None: no record was moved yet."""
    taken: int = 0
    """The position in the ring up to which calls have been taken."""
    announced: bool = False
    """The rank has been reported as joined."""
    seen: bool = False
    """An earlier search for new ranks has found the ring."""
    exchanged: deque[TraceEntry] = field(default_factory=lambda: deque(maxlen=_EXCHANGES_KEPT))
    """The newest exchanges of paceline's own backends."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A process whose program is done and whose interpreter is still shutting down."""

    since_ns: int
    """When the program was done, in Unix ns."""
    meant_code: int | None
    """The exit code with which the program ended; None: not known."""


class RingCollector:
    """One attempt's rings on one host. The collector never waits for a rank: it reads shared pages."""

    def __init__(self, ring_dir: Path, directory: RunDirectory, host: str, attempt: int) -> None:
        self._ring_dir = ring_dir
        self._directory = directory
        self._host = host
        self.attempt = attempt
        self._rings: dict[Path, _Ring] = {}
        self._ranks_taken: set[int] = set()
        self._rollups = StepRollups(directory.attempt(host, attempt))
        self._unwritten = 0
        self._turn = threading.Lock()
        self._inbox_path = inbox(ring_dir / f"{attempt}-")
        self._inbox = _listening(self._inbox_path)

    def look(self) -> None:
        """Find new rings and read every header. It reads shared memory only, so it never waits for a disk."""
        with self._turn:
            for path, descriptor in self._handed_over():
                if path not in self._rings:
                    self._open(path, descriptor)
                else:
                    # A rank that has executed another program, which became a rank as well.
                    os.close(descriptor)
            for path in self._ring_dir.glob(f"{self.attempt}-*.ring"):
                if path not in self._rings:
                    self._open(path)
            for ring in self._rings.values():
                # A rank that crashes may have overwritten its own header. The last valid header counts.
                with suppress(ValueError):
                    ring.header = ring.reader.header()

    def drain(self, *, is_last: bool = False) -> None:
        """Call `look`, then move every new record to its segment. It may wait for the recording's disk. One caller at a time.

        `is_last`: the ranks have ended, so the sums of their steps are written as they are.
        """
        self.look()
        for ring in self._now():
            self._append(ring)
            self._read_texts(ring)
        self._rollups.write(time.time_ns(), is_last=is_last)

    def take_sums(self) -> dict[str, str]:
        """Seconds of an interval -> the newest sums of steps as base64, for the first host. Call it before the first `drain` as well."""
        return {str(seconds): b64encode(records).decode() for seconds, records in self._rollups.take_new().items()}

    def unwritten(self) -> tuple[int, int]:
        """How often records could not be moved to a segment, and how many sums of steps were not written, because the disk refused them."""
        return self._unwritten, self._rollups.unwritten_count()

    def pids(self) -> list[int]:
        """The pids of ranks that have not reported that they are leaving."""
        return [ring.header.pid for ring in self._now() if not ring.header.exiting]

    def progress(self) -> dict[str, dict[str, Any]]:
        """Rank -> the fields of its RankRecord so far, as plain data."""
        # If two processes have the same rank, the process that trains must come last: torch saves checkpoints in a second process.
        headers = sorted((ring.header for ring in self._now()), key=lambda header: header.step_count)
        return {str(header.rank): _plain(header, self._host) for header in headers}

    def headers(self) -> dict[int, RingHeader]:
        """Rank -> its newest header. If two processes have the same rank, the process that trains counts."""
        return {rank: ring.header for rank, ring in self._training().items()}

    def take_calls(self) -> list[RankCalls]:
        """The collectives that the ranks have issued since the last call, thinned out if the whole job has many.

        It reads shared memory only. One caller at a time.
        """
        found = []
        for rank, ring in self._training().items():
            with suppress(ValueError, struct.error):
                records, ring.taken, lost = ring.reader.read_from(ring.taken)
                if records or lost or ring.calls.held:
                    # Read the texts after the records: a rank writes a text before the records that refer to it.
                    self._read_texts(ring)
                    most = max(_LEAST_CALLS, _CALLS_OF_ALL_RANKS // (ring.header.world_size or 1))
                    found += ring.calls.take(rank, records, lost, most=most)
                    if ring.reader.exchanges():
                        ring.exchanged.extend(exchange_entries(records, ring.texts))
        return found

    def exchanges(self) -> dict[int, tuple[GroupCounters, ...]]:
        """Rank -> its counters, at the last `look`, in the groups and lanes of paceline's own exchange."""
        return {
            rank: exchange_counters(ring.header.exchanges, ring.texts, ring.header.world_size)
            for rank, ring in self._training().items()
        }

    def groups_exchanged(self) -> dict[int, frozenset[str]]:
        """Rank -> the names of these groups now, including groups for which the table has no room."""
        self.look()
        found = {}
        for rank, ring in self._training().items():
            self._read_texts(ring)
            groups, rows = ring.texts.groups, {row.group for row in ring.header.exchanges}
            found[rank] = frozenset(
                group.name for number, group in groups.items() if number in rows or group.backend in _OUR_BACKENDS
            )
        return found

    def backends(self) -> dict[int, frozenset[str]]:
        """Rank -> the backends of the groups that it has called anything in; before that, of those that DDP may use by itself.

        Empty where none is known.
        """
        return {
            rank: frozenset(group.backend for group in ring.texts.groups.values() if group.backend)
            or _at_first(brought(ring.header.rendezvous).get("backend"))
            for rank, ring in self._training().items()
        }

    def exchanged(self, most: int) -> dict[int, list[TraceEntry]]:
        """Rank -> the newest exchanges among the records that `take_calls` has read."""
        return {rank: list(ring.exchanged)[-most:] for rank, ring in self._training().items() if ring.exchanged}

    def _training(self) -> dict[int, _Ring]:
        # torch saves checkpoints in a second process with the same rank. That process joins later and makes no steps.
        rings = sorted(self._now(), key=lambda ring: (ring.header.step_count, -ring.header.start_ns))
        return dict(sorted({ring.header.rank: ring for ring in rings}.items()))

    def ranks_by_pid(self) -> dict[int, int]:
        """pid -> rank of every process that was one in this attempt, also of those that have ended."""
        return {ring.header.pid: ring.header.rank for ring in self._now()}

    def exiting(self) -> dict[int, Leaving]:
        """pid -> what the process reported when its program and its exit handlers were done."""
        return {
            ring.header.pid: Leaving(ring.header.exit_ns, ring.header.exit_code)
            for ring in self._now()
            if ring.header.exiting and ring.header.exit_ns is not None
        }

    def newly_joined(self) -> list[dict[str, Any]]:
        """The ranks that appeared since the last call."""
        # A ring exists shortly before its rank has written its rendezvous settings.
        new = [ring for ring in self._now() if not ring.announced and (ring.seen or _has_spoken(ring.header))]
        for ring in self._now():
            ring.seen = True
        for ring in new:
            ring.announced = True
        return [
            {
                "rank": r.header.rank,
                "attempt": self.attempt,
                "pid": r.header.pid,
                "world_size": r.header.world_size,
                "local_rank": r.header.local_rank,
                "rendezvous": brought(r.header.rendezvous),
            }
            for r in new
        ]

    def newly_said(self) -> list[dict[str, Any]]:
        """The ranks' messages for the user since the last call, among the records that were drained."""
        new = []
        for ring in self._now():
            said, ring.texts.said = ring.texts.said, []
            new += [
                {"rank": ring.header.rank, "attempt": self.attempt, "topic": each.topic, "text": each.text}
                for each in said
            ]
        return new

    def newly_marked(self) -> list[tuple[str, dict[str, Any]]]:
        """What the ranks train with, as events with their fields: what was reported since the last call and was drained."""
        new = []
        for ring in self._now():
            marks, ring.texts.marks = ring.texts.marks, []
            new += [(kind, {"rank": ring.header.rank, "attempt": self.attempt, kind: mark}) for kind, mark in marks]
        return new

    def close(self) -> None:
        for path, ring in self._rings.items():
            ring.reader.close()
            if ring.segment is not None:
                # What a full disk has refused is still in its buffer; it was counted when it was refused.
                with suppress(OSError):
                    ring.segment.close()
            for file in (path, path.with_suffix(".texts")):
                file.unlink(missing_ok=True)
        self._rings.clear()
        if self._inbox is not None:
            self._inbox.close()
            self._inbox_path.unlink(missing_ok=True)

    def _handed_over(self) -> Iterator[tuple[Path, int]]:
        """The rings that ranks have handed over since the last call: path and descriptor. The directory is this user's alone."""
        with suppress(OSError):
            while self._inbox is not None:
                name, descriptors, _, _ = socket.recv_fds(self._inbox, _LONGEST_NAME, 1)
                for descriptor in descriptors:
                    os.set_inheritable(descriptor, False)
                    yield self._ring_dir / os.path.basename(os.fsdecode(name)), descriptor

    def _now(self) -> list[_Ring]:
        # A copy that is made in one step: another thread may add a new ring while this thread iterates.
        return list(self._rings.values())

    def _open(self, path: Path, descriptor: int | None = None) -> None:
        try:
            reader = RingReader(path, descriptor)
            texts = StringTable(path.with_suffix(".texts"))
            self._rings[path] = _Ring(reader, reader.header(), texts, CallReader(texts))
        except (ValueError, OSError):
            return
        # Nobody reaches it by its name from now on: if it were cut off, the rank would end with SIGBUS.
        with suppress(OSError):
            path.unlink(missing_ok=True)

    def _read_texts(self, ring: _Ring) -> None:
        # Heartbeats and traces are read in different threads.
        with self._turn:
            ring.texts.update()

    def _append(self, ring: _Ring) -> None:
        try:
            # Calls and exchanges are compared during the run. In a long run they would fill a disk.
            records = drained(ring.reader, without=(RecordKind.CALL, RecordKind.EXCHANGE))
            self._rollups.add(ring.header.rank, records)
            if ring.segment is None:
                ring.segment = self._open_segment(ring.header)
            append_records(ring.segment, ring.reader, records)
        except (OSError, ValueError, struct.error):
            self._unwritten += 1

    def _open_segment(self, header: RingHeader) -> BinaryIO:
        path = self._directory.segment_file(self._host, self.attempt, header.rank)
        # Two processes may have the same rank, in turn or by mistake. Each process gets its own segment.
        if header.rank in self._ranks_taken:
            path = path.with_name(f"{path.stem}-{header.pid}{path.suffix}")
        make_folder(path.parent)
        segment = os.fdopen(write_plain(path, os.O_RDWR | os.O_TRUNC), "w+b")
        self._ranks_taken.add(header.rank)
        return segment


def _listening(path: Path) -> socket.socket | None:
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.setblocking(False)
    try:
        inbox.bind(os.fspath(path))
    except OSError:
        # The directory is gone, or its path is too long for a socket.
        inbox.close()
        return None
    return inbox


_SELDOM = ("left_at", "loaded_file", "optimizer_loaded", "parameters_asked", "parameters_loaded")


def _at_first(backend: str | None) -> frozenset[str]:
    # DDP may use a group over NCCL that was made beside the one of the rendezvous.
    return frozenset((backend, "nccl")) if backend else frozenset()


def _has_spoken(header: RingHeader) -> bool:
    return bool(header.phase or header.step_count)


def _plain(header: RingHeader, host: str) -> dict[str, Any]:
    record = dataclasses.asdict(from_header(header, host))
    # These are sent each second, and most jobs have none of them.
    left_out = {"steps", "step_lengths", "exit", *(name for name in _SELDOM if not record[name])}
    return {name: value for name, value in record.items() if name not in left_out}
