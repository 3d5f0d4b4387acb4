"""How late each rank came to the collectives, every few seconds: `lateness.roll`, which the first host's agent writes.

    frame    "LATE", attempt, number of ranks, 0 (u32 each); begin and end of the stretch (Unix ns of the first host's clock), its first
             and its last step, a mean step in ns (u64 each); then for each rank, from 0 on, two u16: how late it was on average, as a
             share of the step, and the share of the steps in which it was the last one, both in ten-thousandths and one more; 0: not
             judged

Recordings from before have this in their `tempo` events, one mean for half a minute.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import open_plain
from paceline.recording.step_columns import TimeAxis
from paceline.recording.writer import append_whole_records

_FRAME = struct.Struct("<4sIIIQQQQQ")
_MAGIC = b"LATE"
_UNITS = 10_000
_UNKNOWN = 0
_MOST_VALUE = 0xFFFF
_MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessFrame:
    """How late the ranks were over some steps."""

    attempt: int
    """The attempt, counted from 0."""
    from_ns: int
    """Begin of the stretch, Unix time."""
    to_ns: int
    """Its end."""
    from_step: int
    """Its first step."""
    to_step: int
    """Its last step."""
    step_ns: int
    """A mean step."""
    late: Mapping[int, float]
    """Rank -> how late it was in a mean step, as a share of the step."""
    last: Mapping[int, float]
    """Rank -> share of the steps in which it was the last one by more than noise."""


class LatenessFile:
    """Appends frames. A disk that refuses a frame costs this frame, which is counted in `lost`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lost = 0

    def append(self, frame: LatenessFrame) -> None:
        try:
            append_whole_records(self._path, packed_frame(frame), 1)
        except OSError:
            self.lost += 1


def packed_frame(frame: LatenessFrame) -> bytes:
    """The frame as bytes: 56 and 4 for each rank up to the highest that is judged."""
    ranks = max((*frame.late, *frame.last), default=-1) + 1
    values = array("H", [_UNKNOWN]) * (2 * ranks)
    for offset, shares in enumerate((frame.late, frame.last)):
        for rank, share in shares.items():
            values[2 * rank + offset] = _value(share)
    numbers = (frame.from_ns, frame.to_ns, frame.from_step, frame.to_step, frame.step_ns)
    return _FRAME.pack(_MAGIC, frame.attempt, ranks, 0, *numbers) + values.tobytes()


def _value(share: float) -> int:
    return 1 + min(max(round(share * _UNITS), 0), _MOST_VALUE - 1)


# --------------------------------------------------------------------------------------------------------------- reading

# A value of each rank; and number of a part of the time -> the largest values in it.
_Values: TypeAlias = "array[int]"
_Columns: TypeAlias = dict[int, _Values]


@dataclass(frozen=True, slots=True)
class LateRow:
    """One rank."""

    host: str
    """Its host."""
    rank: int
    """The rank."""
    share: list[float | None] = field(repr=False)
    """How late it came to the collectives in each part of the time, as a share of the step; None: not judged."""

    def worst(self) -> float:
        """The largest share."""
        return max((one for one in self.share if one is not None), default=0.0)


def late_rows(
    directories: Sequence[RunDirectory], events: Sequence[Mapping[str, Any]], axis: TimeAxis
) -> tuple[list[LateRow], list[str]]:
    """The ranks of the newest attempt that was judged, in their order, and texts about what could not be read.

    Of several stretches in one part of the time the latest share counts.
    """
    found: _Columns = {}
    newest, complaints = -1, []
    for directory in directories:
        try:
            for attempt, columns, late in _stretches(directory.lateness_file, axis):
                if attempt > newest:
                    newest, found = attempt, {}
                if attempt == newest:
                    _add(found, columns, late)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            complaints.append(f"{directory.lateness_file.name}: {error}")
    hosts = _hosts(events, newest) if found else _add_old_events(found, events, axis)
    return _rows(found, hosts, axis.columns), complaints


def _stretches(path: Path, axis: TimeAxis) -> Iterator[tuple[int, range, _Values]]:
    """Attempt, parts of the time and how late each rank was, of each frame; one that was written in part ends them."""
    with open_plain(path) as file:
        while len(head := file.read(_FRAME.size)) == _FRAME.size:
            magic, attempt, ranks, _, from_ns, to_ns, *_ = _FRAME.unpack(head)
            if magic != _MAGIC or ranks > _MOST_RANKS:
                raise ValueError(f"no frame at byte {file.tell() - _FRAME.size}")
            body = file.read(4 * ranks)
            if len(body) < 4 * ranks:
                return
            yield attempt, range(axis.column(from_ns), axis.column(to_ns) + 1), array("H", body)[::2]


def _add(found: _Columns, columns: Iterable[int], late: _Values) -> None:
    for column in columns:
        known = found.get(column)
        if known is None:
            found[column] = late
            continue
        longer, shorter = (known, late) if len(known) >= len(late) else (late, known)
        found[column] = array("H", map(max, longer, shorter)) + longer[len(shorter) :]


def _rows(found: _Columns, hosts: Mapping[int, str], columns: int) -> list[LateRow]:
    of_each = [found.get(column, array("H")) for column in range(columns)]
    ranks = max(map(len, of_each), default=0)
    rows = (
        LateRow(
            hosts.get(rank, "?"), rank, [_share(values[rank]) if rank < len(values) else None for values in of_each]
        )
        for rank in range(ranks)
    )
    return [row for row in rows if any(one is not None for one in row.share)]


def _share(value: int) -> float | None:
    return None if value == _UNKNOWN else (value - 1) / _UNITS


def _hosts(events: Iterable[Mapping[str, Any]], attempt: int) -> dict[int, str]:
    """Rank -> its host, from the placement of the attempt."""
    found: dict[int, str] = {}
    for event in events:
        if event.get("event") != "attempt_started" or event.get("attempt") != attempt:
            continue
        placements = event.get("hosts")
        for one in placements if isinstance(placements, list) else ():
            if not isinstance(one, Mapping):
                continue
            host, first, count = one.get("host"), one.get("first_rank"), one.get("ranks")
            if isinstance(host, str) and isinstance(first, int) and isinstance(count, int):
                found |= dict.fromkeys(range(first, first + min(count, _MOST_RANKS)), host)
    return found


# ----------------------------------------------------------------------------------------- recordings without this file


def _add_old_events(found: _Columns, events: Iterable[Mapping[str, Any]], axis: TimeAxis) -> dict[int, str]:
    """Add the `tempo` events of the newest attempt, in which each rank has its mean over a window. Returns rank -> its host."""
    newest = 0
    hosts: dict[int, str] = {}
    for event in events:
        timing = event.get("tempo")
        if event.get("event") != "tempo" or not isinstance(timing, Mapping):
            continue
        attempt, at_ns, window, step = (
            timing.get(name) for name in ("attempt", "at_ns", "window_seconds", "step_seconds")
        )
        if (
            not isinstance(at_ns, int)
            or not _is_number(window)
            or not _is_number(step)
            or step <= 0
            or abs(window) > 1e9
        ):
            continue
        if isinstance(attempt, int) and attempt > newest:
            newest, hosts = attempt, {}
            found.clear()
        late, told = _of_old_event(timing.get("ranks"), step)
        hosts |= told
        if late:
            _add(found, range(axis.column(at_ns - round(window * 1e9)), axis.column(at_ns) + 1), late)
    return hosts


def _of_old_event(ranks: Any, step_seconds: float) -> tuple[_Values, dict[int, str]]:
    late, hosts = array("H"), {}
    for one in ranks if isinstance(ranks, list | tuple) else ():
        if not isinstance(one, Mapping):
            continue
        rank, host, seconds = one.get("rank"), one.get("host"), one.get("late_seconds")
        if not isinstance(rank, int) or not 0 <= rank < _MOST_RANKS or not _is_number(seconds):
            continue
        if rank >= len(late):
            late.extend([_UNKNOWN] * (rank + 1 - len(late)))
        late[rank] = _value(seconds / step_seconds)
        hosts[rank] = str(host)
    return late, hosts


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < 1e18
