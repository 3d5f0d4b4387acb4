"""Takes what the ranks of one attempt wrote to their rings into segment files, and says how far each rank is."""

import dataclasses
import struct
import threading
from collections import deque
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
from paceline.recording.ring import RecordKind, RingHeader, RingReader
from paceline.recording.segments import append_segment, from_header
from paceline.recording.string_table import StringTable

# What the first agent can compare at every poll, and what each rank may always tell.
_CALLS_OF_ALL_RANKS, _LEAST_CALLS = 4096, 16
_OUR_BACKENDS = ("paceline", "smddp", "paceline_mpi")
# What torch's flight recorder is given room for.
_EXCHANGES_KEPT = 2000


@dataclass(slots=True)
class _Ring:
    """One rank's ring, and what was taken from it."""

    reader: RingReader
    """Reads the ring's shared pages."""
    header: RingHeader
    """What the rank said last of itself."""
    texts: StringTable
    """The names that the ring's records refer to by number."""
    calls: CallReader
    """Makes collectives of the ring's records."""
    segment: BinaryIO | None = None
    """The file in the recording that records are moved to; None: nothing was moved yet."""
    taken: int = 0
    """The position in the ring up to which calls have been taken."""
    announced: bool = False
    """The rank has been reported as joined."""
    seen: bool = False
    """The ring was there at an earlier search for new ranks."""
    exchanged: deque[TraceEntry] = field(default_factory=lambda: deque(maxlen=_EXCHANGES_KEPT))
    """The newest exchanges of paceline's own backends."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A program that is done and whose interpreter is still shutting down."""

    since_ns: int
    """When the program was done, in Unix ns."""
    meant_code: int | None
    """The exit code that the program ended with; None: not known."""


class RingCollector:
    """One attempt's rings on one host. Never waits for a rank: it reads shared pages."""

    def __init__(self, ring_dir: Path, directory: RunDirectory, host: str, attempt: int) -> None:
        self._ring_dir = ring_dir
        self._directory = directory
        self._host = host
        self.attempt = attempt
        self._rings: dict[Path, _Ring] = {}
        self._ranks_taken: set[int] = set()
        self.lost_count = 0
        self._turn = threading.Lock()

    def look(self) -> None:
        """Find new rings and read every header: shared memory only, so it never waits for a disk."""
        with self._turn:
            for path in self._ring_dir.glob(f"{self.attempt}-*.ring"):
                if path not in self._rings:
                    self._open(path)
            for ring in self._rings.values():
                # A rank that crashes may have written over its own header: what it said last counts.
                with suppress(ValueError):
                    ring.header = ring.reader.header()

    def drain(self) -> None:
        """Look, then move every new record into its segment; may wait for the recording's disk. One caller at a time."""
        self.look()
        for ring in self._now():
            self._append(ring)
            self._read_texts(ring)

    def pids(self) -> list[int]:
        """Processes that are ranks and have not said that they are leaving."""
        return [ring.header.pid for ring in self._now() if not ring.header.exiting]

    def progress(self) -> dict[str, dict[str, Any]]:
        """Rank to the fields of its RankRecord so far, as plain data."""
        # Of two processes under one rank the one that trains counts last; torch saves checkpoints in such a second one.
        headers = sorted((ring.header for ring in self._now()), key=lambda header: header.step_count)
        return {str(header.rank): _plain(header, self._host) for header in headers}

    def headers(self) -> dict[int, RingHeader]:
        """Rank -> what it said last; of two processes under one rank the one that trains."""
        return {rank: ring.header for rank, ring in self._training().items()}

    def take_calls(self) -> list[RankCalls]:
        """The collectives that the ranks have issued since the last time, thinned where they are many in the whole job.

        Shared memory only; one caller at a time.
        """
        found = []
        for rank, ring in self._training().items():
            with suppress(ValueError, struct.error):
                records, ring.taken, lost = ring.reader.read_from(ring.taken)
                if records or lost or ring.calls.held:
                    # After the records: what they refer to was written before them.
                    self._read_texts(ring)
                    most = max(_LEAST_CALLS, _CALLS_OF_ALL_RANKS // (ring.header.world_size or 1))
                    found += ring.calls.take(rank, records, lost, most=most)
                    if ring.reader.exchanges():
                        ring.exchanged.extend(exchange_entries(records, ring.texts))
        return found

    def exchanges(self) -> dict[int, tuple[GroupCounters, ...]]:
        """Rank -> how far it is, at the last look, in the groups and lanes of paceline's own exchange."""
        return {
            rank: exchange_counters(ring.header.exchanges, ring.texts, ring.header.world_size)
            for rank, ring in self._training().items()
        }

    def groups_exchanged(self) -> dict[int, frozenset[str]]:
        """Rank -> the names of these groups as of now, also of those that the table no longer has room for."""
        self.look()
        found = {}
        for rank, ring in self._training().items():
            self._read_texts(ring)
            groups, rows = ring.texts.groups, {row.group for row in ring.header.exchanges}
            found[rank] = frozenset(
                group.name for number, group in groups.items() if number in rows or group.backend in _OUR_BACKENDS
            )
        return found

    def exchanged(self, most: int) -> dict[int, list[TraceEntry]]:
        """Rank -> the newest exchanges among what `take_calls` took."""
        return {rank: list(ring.exchanged)[-most:] for rank, ring in self._training().items() if ring.exchanged}

    def _training(self) -> dict[int, _Ring]:
        # torch saves checkpoints in a second process under the same rank; it joins later, and makes no steps.
        rings = sorted(self._now(), key=lambda ring: (ring.header.step_count, -ring.header.start_ns))
        return dict(sorted({ring.header.rank: ring for ring in rings}.items()))

    def exiting(self) -> dict[int, Leaving]:
        """pid -> what it said when its program and its exit handlers were done."""
        return {
            ring.header.pid: Leaving(ring.header.exit_ns, ring.header.exit_code)
            for ring in self._now()
            if ring.header.exiting and ring.header.exit_ns is not None
        }

    def newly_joined(self) -> list[dict[str, Any]]:
        """The ranks that appeared since the last call."""
        # A ring is there a moment before its rank has said what it brings to the rendezvous.
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
                "rendezvous": brought(r.header.rendezvous),
            }
            for r in new
        ]

    def newly_said(self) -> list[dict[str, Any]]:
        """What the ranks want the person to know since the last call, as far as it was drained."""
        new = []
        for ring in self._now():
            said, ring.texts.said = ring.texts.said, []
            new += [
                {"rank": ring.header.rank, "attempt": self.attempt, "topic": each.topic, "text": each.text}
                for each in said
            ]
        return new

    def newly_marked(self) -> list[tuple[str, dict[str, Any]]]:
        """What the ranks train with, as events with their fields, as far as they said so since the last call and it was drained."""
        new = []
        for ring in self._now():
            marks, ring.texts.marks = ring.texts.marks, []
            new += [(kind, {"rank": ring.header.rank, "attempt": self.attempt, kind: mark}) for kind, mark in marks]
        return new

    def close(self) -> None:
        for path, ring in self._rings.items():
            ring.reader.close()
            if ring.segment is not None:
                ring.segment.close()
            for file in (path, path.with_suffix(".texts")):
                file.unlink(missing_ok=True)
        self._rings.clear()

    def _now(self) -> list[_Ring]:
        # A copy, made in one step: another thread may find a new ring while this one goes through them.
        return list(self._rings.values())

    def _open(self, path: Path) -> None:
        try:
            reader = RingReader(path)
            texts = StringTable(path.with_suffix(".texts"))
            self._rings[path] = _Ring(reader, reader.header(), texts, CallReader(texts))
        except (ValueError, OSError):
            return

    def _read_texts(self, ring: _Ring) -> None:
        # Heartbeats and traces are taken in different threads.
        with self._turn:
            ring.texts.update()

    def _append(self, ring: _Ring) -> None:
        try:
            if ring.segment is None:
                ring.segment = self._open_segment(ring.header)
            # Calls and exchanges are compared while they are made, and would fill a disk in a long run.
            append_segment(ring.segment, ring.reader, without=(RecordKind.CALL, RecordKind.EXCHANGE))
        except (OSError, ValueError, struct.error):
            self.lost_count += 1

    def _open_segment(self, header: RingHeader) -> BinaryIO:
        path = self._directory.segment_file(self._host, self.attempt, header.rank)
        # Two processes may claim one rank, in turn or by mistake; each keeps what it wrote.
        if header.rank in self._ranks_taken:
            path = path.with_name(f"{path.stem}-{header.pid}{path.suffix}")
        path.parent.mkdir(parents=True, exist_ok=True)
        segment = path.open("w+b")
        self._ranks_taken.add(header.rank)
        return segment


def _has_spoken(header: RingHeader) -> bool:
    return bool(header.phase or header.step_count)


def _plain(header: RingHeader, host: str) -> dict[str, Any]:
    record = dataclasses.asdict(from_header(header, host))
    return {name: value for name, value in record.items() if name not in ("steps", "step_lengths", "exit")}
