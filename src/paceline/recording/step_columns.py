"""The steps of each rank in equal parts of the time. Segments are folded while they are read, so that the steps of a long run fit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import open_plain
from paceline.recording.ring import HEADER_BYTES, RECORD_BYTES, RecordKind, parse_header
from paceline.recording.segments import segments

_CHUNK_BYTES = 16384 * RECORD_BYTES
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


@dataclass(frozen=True, slots=True)
class StepColumns:
    """The steps of one process, by the part of the time in which they ended. Times are sums in nanoseconds."""

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


def step_columns(directories: Sequence[RunDirectory], axis: TimeAxis) -> tuple[tuple[StepColumns, ...], list[str]]:
    """The steps of every segment that has any, and texts about segments that cannot be read.

    Holds:   the counts of a rank add up to the steps in its segment
    """
    found, complaints = [], []
    for path in segments(directories):
        try:
            columns = _of_segment(path, axis)
        except (OSError, ValueError) as error:
            complaints.append(f"{path.parent.parent.name} {path.parent.name} {path.name}: {error}")
            continue
        if any(columns.counts):
            found.append(columns)
    return tuple(found), complaints


def _of_segment(path: Path, axis: TimeAxis) -> StepColumns:
    attempt = path.parent.name.removeprefix("attempt_")
    with open_plain(path) as file:
        header = parse_header(file.read(HEADER_BYTES))
        counts, totals, longest = ([0] * axis.columns for _ in range(3))
        while chunk := file.read(_CHUNK_BYTES):
            cells = memoryview(chunk[: len(chunk) // RECORD_BYTES * RECORD_BYTES]).cast("Q")
            kinds, ends, lengths = (cells[at::_CELLS].tolist() for at in (0, 2, 3))
            for kind, end_ns, length_ns in zip(kinds, ends, lengths, strict=True):
                if kind & 0xFFFF != RecordKind.STEP:
                    continue
                column = axis.column(end_ns)
                counts[column] += 1
                totals[column] += length_ns
                longest[column] = max(longest[column], length_ns)
    number = int(attempt) if attempt.isdigit() else header.attempt
    return StepColumns(path.parent.parent.name, header.rank, number, counts, totals, longest)
