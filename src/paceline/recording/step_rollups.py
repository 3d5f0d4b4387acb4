"""Steps of all ranks of a host and attempt, summed up for each 10, 160 and 2,560 seconds, so that long and wide runs can be read.

    attempt_<a>/steps_<seconds>s.roll     records of 64 bytes, in the order of each rank's time

A record: rank and number of steps (u32), then seven u64: end of the last step (Unix ns), number of the first step, total time, longest
step, waiting for data, exposed communication, saving checkpoints. Times are nanoseconds. A record has the steps of one rank that ended in
one interval; intervals begin at multiples of their length. A coarser file has the sums of the finer file's records, so that in each file
a step counts once. The newest steps are in the finer file first: what follows the last record of a rank in the coarser file is there.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paceline.recording.plain_files import open_plain
from paceline.recording.ring import RECORD_BYTES, RecordKind
from paceline.recording.writer import append_whole_records

INTERVALS_SECONDS = (10, 160, 2560)
ROLLUP = struct.Struct("<II7Q")
# Records of a step that the agent drains a little later still belong to the interval.
_GRACE_NS = 2_000_000_000
# What a disk that is full for a while does not lose: an hour of a host of 16 ranks.
_MOST_WAITING_BYTES = 1 << 20
_SECOND_NS = 1_000_000_000
_CHUNK_BYTES = 16384 * ROLLUP.size
_TAIL_BYTES = 1024 * ROLLUP.size
_CELLS = RECORD_BYTES // 8


def rollup_file(attempt_directory: Path, seconds: int) -> Path:
    """The file with one record for each rank and so many seconds."""
    return attempt_directory / f"steps_{seconds}s.roll"


@dataclass(slots=True)
class _Sum:
    """Steps of one rank in one interval, which is not over."""

    interval: int
    """Number of the interval."""
    first_step: int
    """Number of the first of these steps."""
    end_ns: int = 0
    """End of the last one."""
    count: int = 0
    """Number of steps."""
    total_ns: int = 0
    """Their time."""
    longest_ns: int = 0
    """The longest of them."""
    data_ns: int = 0
    """Of their time: waiting for data."""
    communication_ns: int = 0
    """Of their time: exposed communication."""
    checkpoint_ns: int = 0
    """Of their time: saving checkpoints."""

    def add(self, other: "_Sum") -> None:
        self.end_ns = other.end_ns
        self.count += other.count
        self.total_ns += other.total_ns
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.data_ns += other.data_ns
        self.communication_ns += other.communication_ns
        self.checkpoint_ns += other.checkpoint_ns

    def packed(self, rank: int) -> bytes:
        return ROLLUP.pack(
            rank & 0xFFFFFFFF,
            self.count & 0xFFFFFFFF,
            *(
                value & 0xFFFFFFFFFFFFFFFF
                for value in (
                    self.end_ns,
                    self.first_step,
                    self.total_ns,
                    self.longest_ns,
                    self.data_ns,
                    self.communication_ns,
                    self.checkpoint_ns,
                )
            ),
        )


@dataclass(slots=True)
class _Level:
    """One file: the sums of its open intervals, and what was not written yet."""

    path: Path
    """The file."""
    length_ns: int
    """Length of an interval."""
    open: dict[int, _Sum] = field(default_factory=dict)
    """Rank -> the sum of the interval that is not over."""
    waiting: bytearray = field(default_factory=bytearray)
    """Whole records that are to be written."""


class StepRollups:
    """Sums up the steps of one attempt's ranks on one host, and writes the files. The records come from the rings, so ranks do nothing.

    Holds:   of every file, the counts of a rank's records add up to the steps that were added, if nothing was lost
    """

    def __init__(self, attempt_directory: Path) -> None:
        self._levels = [
            _Level(rollup_file(attempt_directory, seconds), seconds * _SECOND_NS) for seconds in INTERVALS_SECONDS
        ]
        self._lost_count = 0
        # Seconds of an interval -> records that were made since the last `take_new`; None: nobody takes them.
        self._new: dict[int, bytearray] | None = None

    def take_new(self) -> dict[int, bytes]:
        """Seconds of an interval -> the records that were made since the last call, for the first host. The first call has none."""
        found, self._new = self._new or {}, {}
        return {seconds: bytes(records) for seconds, records in found.items()}

    def add(self, rank: int, records: bytes) -> None:
        """Add drained records of a rank's ring, in their order. Records that are no steps are passed over."""
        for found in _sums(records, self._levels[0].length_ns):
            self._take(0, rank, found)

    def write(self, now_ns: int, *, is_last: bool = False) -> None:
        """Append what is over to the files. A disk that refuses keeps nothing from going on: a limited amount waits for it.

        `is_last`: every interval ends now.
        """
        for place, level in enumerate(self._levels):
            over = [
                rank
                for rank, sum_ in level.open.items()
                if is_last or (sum_.interval + 1) * level.length_ns + _GRACE_NS <= now_ns
            ]
            for rank in over:
                self._close(place, rank)
            if level.waiting:
                self._append(level)

    def _take(self, place: int, rank: int, found: _Sum) -> None:
        level = self._levels[place]
        known = level.open.get(rank)
        interval = found.end_ns // level.length_ns
        # If the clock is set back, the interval goes on.
        if known is not None and interval > known.interval:
            self._close(place, rank)
            known = None
        if known is None:
            known = level.open[rank] = _Sum(interval, found.first_step)
        known.add(found)

    def _close(self, place: int, rank: int) -> None:
        found = self._levels[place].open.pop(rank)
        packed = found.packed(rank)
        self._levels[place].waiting += packed
        if self._new is not None:
            self._new.setdefault(INTERVALS_SECONDS[place], bytearray()).extend(packed)
        if place + 1 < len(self._levels):
            self._take(place + 1, rank, found)

    def _append(self, level: _Level) -> None:
        try:
            append_whole_records(level.path, bytes(level.waiting), ROLLUP.size)
        except OSError:
            too_many = len(level.waiting) - _MOST_WAITING_BYTES
            if too_many > 0:
                dropped = -(-too_many // ROLLUP.size)
                self._lost_count += dropped
                del level.waiting[: dropped * ROLLUP.size]
            return
        level.waiting.clear()

    def unwritten_count(self) -> int:
        """Records that no file has: those that were dropped, and those that still wait for a disk that refused them."""
        return self._lost_count + sum(len(level.waiting) // ROLLUP.size for level in self._levels)


def _sums(records: bytes, length_ns: int) -> Iterator[_Sum]:
    """The steps among the records, summed up for each interval; column by column, because a quick job makes thousands of them."""
    cells = memoryview(records).cast("Q")
    columns = [cells[at::_CELLS].tolist() for at in range(_CELLS - 1)]
    if any(kind & 0xFFFF != RecordKind.STEP for kind in columns[0]):
        are_steps = [kind & 0xFFFF == RecordKind.STEP for kind in columns[0]]
        columns = [[value for value, is_step in zip(column, are_steps, strict=True) if is_step] for column in columns]
    _, steps, ends, lengths, data, communication, checkpoint = columns
    at = 0
    while at < len(ends):
        interval = ends[at] // length_ns
        end = max(bisect_left(ends, (interval + 1) * length_ns, at), at + 1)
        yield _Sum(
            interval,
            steps[at],
            ends[end - 1],
            end - at,
            sum(lengths[at:end]),
            max(lengths[at:end]),
            sum(data[at:end]),
            sum(communication[at:end]),
            sum(checkpoint[at:end]),
        )
        at = end


@dataclass(frozen=True, slots=True)
class RollupColumns:
    """Some records of one file, column by column. Times are nanoseconds."""

    ranks: list[int]
    """Rank of each record."""
    counts: list[int]
    """Number of steps."""
    ends_ns: list[int]
    """End of the last step."""
    totals_ns: list[int]
    """Time of the steps."""
    longest_ns: list[int]
    """The longest step."""


def read_rollups(path: Path) -> Iterator[RollupColumns]:
    """The records of a file, some thousand at a time; a record that was written in part is left out.

    Raises:  OSError: the file cannot be read
    """
    with open_plain(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield _columns(chunk)


def read_newest_rollups(path: Path, covered: Mapping[int, int]) -> list[RollupColumns]:
    """The records from the first one on that ends after what is covered (rank -> time), and some before; the file is read from its end.

    Raises:  OSError: the file cannot be read
    """
    found: list[RollupColumns] = []
    with open_plain(path) as file:
        end = file.seek(0, 2) // ROLLUP.size * ROLLUP.size
        while end > 0:
            begin = max(end - _TAIL_BYTES, 0)
            file.seek(begin)
            part = _columns(file.read(end - begin))
            if not any(at > covered.get(rank, -1) for rank, at in zip(part.ranks, part.ends_ns, strict=True)):
                break
            found.insert(0, part)
            end = begin
    return found


def _columns(chunk: bytes) -> RollupColumns:
    cells = memoryview(chunk[: len(chunk) // ROLLUP.size * ROLLUP.size]).cast("Q")
    heads, ends, totals, longest = (cells[at::_CELLS].tolist() for at in (0, 1, 3, 4))
    ranks, counts = [head & 0xFFFFFFFF for head in heads], [head >> 32 for head in heads]
    return RollupColumns(ranks, counts, ends, totals, longest)
