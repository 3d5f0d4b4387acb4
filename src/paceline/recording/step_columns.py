"""The steps of each rank in equal parts of the time. Files are folded while they are read, so that the steps of a long run fit.

Of a short run every step is read. If the segments of the run are large, the sums that the agents have written are read in their place
(step_rollups.py), and of the segments only what follows them.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.recording.clocks import HostClocks
from paceline.recording.jsonl import read_json_lines
from paceline.recording.layout import RunDirectory
from paceline.recording.peer_steps import step_totals
from paceline.recording.plain_files import open_plain
from paceline.recording.ring import HEADER_BYTES, RECORD_BYTES, RecordKind, parse_header
from paceline.recording.segments import segments
from paceline.recording.step_rollups import (
    INTERVALS_SECONDS,
    RollupColumns,
    read_newest_rollups,
    read_rollups,
    rollup_file,
)

# The finest files of at most this size together are read, which takes some seconds.
_MOST_BYTES = 256 << 20
_CHUNK_BYTES = 16384 * RECORD_BYTES
_TAIL_BYTES = 64 * RECORD_BYTES
_STREAMED_BYTES = 256 << 10
_CELLS = RECORD_BYTES // 8


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Equal parts of a span of time."""

    from_ns: int
    """Its begin, Unix time."""
    to_ns: int
    """Its end."""
    columns: int
    """Number of parts."""

    def column(self, t_ns: int) -> int:
        """The part in which a time lies; a time outside counts to the first or the last part."""
        place = (t_ns - self.from_ns) * self.columns // max(self.to_ns - self.from_ns, 1)
        return min(max(place, 0), self.columns - 1)

    def shifted(self, offset_ns: int) -> "TimeAxis":
        """The same axis by a clock that is so far ahead."""
        return TimeAxis(self.from_ns + offset_ns, self.to_ns + offset_ns, self.columns)


@dataclass(frozen=True, slots=True)
class StepColumns:
    """The steps of one rank's processes of an attempt, by the part of the time in which they ended. Times are sums in nanoseconds.

    Steps that are known only as a sum are spread over the parts of the time through which they went.
    """

    host: str
    """Its host."""
    rank: int
    """Global rank."""
    attempt: int
    """The attempt, counted from 0."""
    counts: list[int] = field(repr=False)
    """Number of steps."""
    totals_ns: list[int] = field(repr=False)
    """Their time."""
    longest_ns: list[int] = field(repr=False)
    """The longest of them."""


def step_columns(
    directories: Sequence[RunDirectory],
    axis: TimeAxis,
    *,
    clocks: HostClocks | None = None,
    most_bytes: int = _MOST_BYTES,
) -> tuple[tuple[StepColumns, ...], list[str]]:
    """The steps of every rank that has any, and texts about files that cannot be read.

    `clocks`: puts the stamps of other hosts right. `most_bytes`: if all segments together are larger, sums of steps are read, as fine as
    fits into that size.

    Holds:   the counts of a rank add up to the steps in its segment
    """
    found: list[StepColumns] = []
    complaints: list[str] = []
    is_small = _size(segments(directories)) <= most_bytes
    intervals = _intervals(directories, most_bytes)
    for attempt, paths in _by_attempt(directories).items():
        files = [rollup_file(attempt, seconds) for seconds in intervals]
        theirs = axis if clocks is None else axis.shifted(clocks.offset_ns(attempt.parent.name))
        # Another host's sums may be here without its segments.
        if paths and (is_small or not any(file.exists() for file in files)):
            found += _of_segments(paths, theirs, complaints)
        else:
            found += _of_rollups(attempt, files, paths, theirs, complaints)
    return tuple(columns for columns in found if any(columns.counts)), complaints


def _by_attempt(directories: Sequence[RunDirectory]) -> dict[Path, list[Path]]:
    """Directory of a host's attempt -> its segments."""
    found: dict[Path, list[Path]] = {}
    for path in segments(directories):
        found.setdefault(path.parent, []).append(path)
    for directory in directories:
        for path in sorted(directory.path.glob("hosts/*/attempt_*/steps_*s.roll")):
            found.setdefault(path.parent, [])
    own = {(attempt.parent.name, attempt.name) for attempt in found}
    for directory in directories:
        # What a host without shared storage has sent to the first one.
        for path in sorted(directory.path.glob("hosts/*/peers/*/attempt_*/steps_*s.roll")):
            if (path.parent.parent.name, path.parent.name) not in own:
                found.setdefault(path.parent, [])
    return found


def _intervals(directories: Sequence[RunDirectory], most_bytes: int) -> list[int]:
    """The intervals whose sums are read: first the finest one whose files are small enough, then the finer ones for what follows."""
    for number, seconds in enumerate(INTERVALS_SECONDS, 1):
        files = [
            p for directory in directories for p in directory.path.glob(f"hosts/*/attempt_*/steps_{seconds}s.roll")
        ]
        if _size(files) <= most_bytes or number == len(INTERVALS_SECONDS):
            return list(reversed(INTERVALS_SECONDS[:number]))
    return []


def _size(paths: Sequence[Path]) -> int:
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def _empty(host: str, rank: int, attempt: int, axis: TimeAxis) -> StepColumns:
    return StepColumns(host, rank, attempt, *([0] * axis.columns for _ in range(3)))


def _number(attempt: Path) -> int | None:
    text = attempt.name.removeprefix("attempt_")
    return int(text) if text.isdigit() else None


def _complaint(path: Path, error: Exception) -> str:
    return f"{path.parent.parent.name} {path.parent.name} {path.name}: {error}"


# ---------------------------------------------------------------------------------------------------------- single steps


def _of_segments(paths: Sequence[Path], axis: TimeAxis, complaints: list[str]) -> Iterator[StepColumns]:
    for path in paths:
        try:
            yield _of_segment(path, axis)
        except (OSError, ValueError) as error:
            complaints.append(_complaint(path, error))


def _of_segment(path: Path, axis: TimeAxis) -> StepColumns:
    with open_plain(path) as file:
        header = parse_header(file.read(HEADER_BYTES))
        number = _number(path.parent)
        columns = _empty(path.parent.parent.name, header.rank, header.attempt if number is None else number, axis)
        while chunk := file.read(_CHUNK_BYTES):
            _fold(columns, _steps(chunk), axis)
    return columns


def _steps(chunk: bytes) -> Iterator[tuple[int, int]]:
    """(end, duration) of each step among whole records."""
    cells = memoryview(chunk[: len(chunk) // RECORD_BYTES * RECORD_BYTES]).cast("Q")
    kinds, ends, lengths = (cells[at::_CELLS].tolist() for at in (0, 2, 3))
    for kind, end_ns, length_ns in zip(kinds, ends, lengths, strict=True):
        if kind & 0xFFFF == RecordKind.STEP:
            yield end_ns, length_ns


def _fold(columns: StepColumns, steps: Iterator[tuple[int, int]], axis: TimeAxis) -> None:
    counts, totals, longest = columns.counts, columns.totals_ns, columns.longest_ns
    for end_ns, length_ns in steps:
        column = axis.column(end_ns)
        counts[column] += 1
        totals[column] += length_ns
        longest[column] = max(longest[column], length_ns)


# -------------------------------------------------------------------------------------------------------- sums of steps


def _of_rollups(
    attempt: Path, files: Sequence[Path], paths: Sequence[Path], axis: TimeAxis, complaints: list[str]
) -> Iterator[StepColumns]:
    """`files`: sums, of which the first ones are read, and of the others what follows. `paths`: the segments, for the newest steps."""
    host, number = attempt.parent.name, _number(attempt) or 0
    sums = _Sums(lambda rank: _empty(host, rank, number, axis), axis)
    for place, file in enumerate(files):
        try:
            before = dict(sums.covered) if place else {}
            for records in read_newest_rollups(file, before) if place else read_rollups(file):
                sums.add(records, before)
        except FileNotFoundError:
            continue
        except OSError as error:
            complaints.append(_complaint(file, error))
    for path in paths:
        try:
            rank, steps = _steps_after(path, sums.covered)
        except (OSError, ValueError) as error:
            complaints.append(_complaint(path, error))
            continue
        _fold(sums.of(rank), iter(steps), axis)
    if attempt.parent.parent.name == "peers":
        lines, _ = read_json_lines(attempt.parent.with_name(f"{host}.telemetry.jsonl"), tail_bytes=_STREAMED_BYTES)
        _add_streamed(sums, lines, number, axis)
    yield from sums.found.values()


def _add_streamed(sums: "_Sums", lines: Sequence[dict[str, Any]], attempt: int, axis: TimeAxis) -> None:
    """Add the steps that the sums do not have yet, from the totals in the telemetry's newest lines."""
    done = {rank: (sum(one.counts), sum(one.totals_ns)) for rank, one in sums.found.items()}
    for line in lines:
        for rank, totals in step_totals(line).items():
            count, total_ns = done.get(rank, (0, 0))
            if totals.attempt != attempt or totals.step_count <= count:
                continue
            new, new_ns = totals.step_count - count, max(round(totals.step_seconds * 1e9) - total_ns, 0)
            one, column = sums.of(rank), axis.column(totals.t_ns)
            one.counts[column] += new
            one.totals_ns[column] += new_ns
            one.longest_ns[column] = max(one.longest_ns[column], new_ns // new)
            done[rank] = (totals.step_count, total_ns + new_ns)


class _Sums:
    """The columns of a host's ranks, as far as sums of steps have been added."""

    def __init__(self, empty: Callable[[int], StepColumns], axis: TimeAxis) -> None:
        self.found: dict[int, StepColumns] = {}
        self.covered: dict[int, int] = {}
        self._empty = empty
        span_ns = max(axis.to_ns - axis.from_ns, 1)
        # Where each part but the first begins.
        self._borders = [axis.from_ns - (-number * span_ns // axis.columns) for number in range(1, axis.columns)]

    def of(self, rank: int) -> StepColumns:
        """The columns of a rank."""
        if rank not in self.found:
            self.found[rank] = self._empty(rank)
        return self.found[rank]

    def add(self, records: RollupColumns, before: Mapping[int, int]) -> None:
        """Add the sums that end later than `before` says of their rank."""
        borders, covered = self._borders, self.covered
        for rank, count, end_ns, total_ns, longest_ns in zip(
            records.ranks, records.counts, records.ends_ns, records.totals_ns, records.longest_ns, strict=True
        ):
            if not count or (before and end_ns <= before.get(rank, -1)):
                continue
            covered[rank] = end_ns
            one = self.found.get(rank) or self.of(rank)
            last = bisect_right(borders, end_ns)
            first = last if count == 1 else bisect_right(borders, end_ns - total_ns)
            counts, totals, longest = one.counts, one.totals_ns, one.longest_ns
            begin_ns, done, done_ns = end_ns - total_ns, 0, 0
            for column in range(first, last):
                # As if its steps were equally long.
                upto = (count * (borders[column] - begin_ns) - 1) // total_ns
                if upto > done:
                    upto_ns = total_ns * upto // count
                    counts[column] += upto - done
                    totals[column] += upto_ns - done_ns
                    if longest_ns > longest[column]:
                        longest[column] = longest_ns
                    done, done_ns = upto, upto_ns
            counts[last] += count - done
            totals[last] += total_ns - done_ns
            if longest_ns > longest[last]:
                longest[last] = longest_ns


def _steps_after(path: Path, covered: dict[int, int]) -> tuple[int, list[tuple[int, int]]]:
    """The rank of a segment, and its steps that ended after what is covered of it; the segment is read from its end."""
    with open_plain(path) as file:
        header = parse_header(file.read(HEADER_BYTES))
        after_ns = covered.get(header.rank, -1)
        end = file.seek(0, 2)
        end -= max(end - HEADER_BYTES, 0) % RECORD_BYTES
        steps: list[tuple[int, int]] = []
        size = _TAIL_BYTES
        while end > HEADER_BYTES and not (steps and steps[0][0] <= after_ns):
            begin = max(end - size, HEADER_BYTES)
            file.seek(begin)
            steps = [*_steps(file.read(end - begin)), *steps]
            end, size = begin, _CHUNK_BYTES
    return header.rank, steps[bisect_right(steps, after_ns, key=lambda step: step[0]) :]
