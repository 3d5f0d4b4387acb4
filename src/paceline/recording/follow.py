"""Reads JSON lines of files that grow, on from where the last read ended. A file that has not changed is not opened."""

import io
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from paceline.recording.jsonl import MOST_BYTES, MOST_LINES, Records, record_of, unread
from paceline.recording.plain_files import open_plain

# So many bytes before the place where a read goes on show that the file is still the one that was read: lines of a recording have times.
_MARK_BYTES = 256


@dataclass(frozen=True, slots=True)
class Appended:
    """What came since the last read."""

    lines: list[tuple[int, bytes]]
    """Whole lines with their ends, each after the offset of its first byte."""
    rest: bytes
    """The beginning of a line that is not complete."""
    size_bytes: int
    """Size of the file."""
    is_new: bool
    """Whether the file is another one than before, or was cut: what was read before counts no more."""


@dataclass(slots=True)
class GrowingFile:
    """A file of lines. What was read is never read again, except the beginning of a line that was not complete."""

    path: Path
    """The file."""
    head_bytes: int
    """Of a file that has grown by much, the beginning that is read."""
    end_bytes: int
    """And the end."""
    _stamp: tuple[int, int, int, int] | None = None
    _offset: int = 0
    _mark: bytes = b""

    def read(self) -> Appended | None:
        """What was appended; None: the file has not changed.

        Raises:  OSError: as open_plain
        """
        if self._stamp == _stamp(os.stat(self.path)):
            return None
        with open_plain(self.path) as file:
            state = os.fstat(file.fileno())
            is_new = not self._goes_on(file, state)
            if is_new:
                self._offset, self._mark = 0, b""
            lines: list[tuple[int, bytes]] = []
            rest = b""
            for begin, end, is_cut in self._parts(state.st_size):
                data = _between(file, begin, end)
                if is_cut:
                    first_end = data.find(b"\n") + 1 or len(data)
                    begin, data = begin + first_end, data[first_end:]
                whole, newline, rest = data.rpartition(b"\n")
                lines += _placed(whole + newline, begin)
                self._offset = begin + len(whole) + len(newline)
            first = max(self._offset - _MARK_BYTES, 0)
            self._mark = _between(file, first, self._offset)
        self._stamp = _stamp(state)
        return Appended(lines, rest, state.st_size, is_new)

    def forget(self) -> None:
        """The next read begins anew."""
        self._stamp, self._offset, self._mark = None, 0, b""

    def _goes_on(self, file: BinaryIO, state: os.stat_result) -> bool:
        if self._stamp is None or self._stamp[:2] != _stamp(state)[:2] or state.st_size < self._stamp[2]:
            return False
        return _between(file, self._offset - len(self._mark), self._offset) == self._mark

    def _parts(self, size: int) -> list[tuple[int, int, bool]]:
        """What is read of a file of this size, as begin, end and whether it begins inside a line: all that is new, or beginning and end."""
        late = size - self.end_bytes
        if late <= self.head_bytes or late < self._offset:
            return [(self._offset, size, False)]
        head = [(self._offset, self.head_bytes, False)] if self._offset < self.head_bytes else []
        return [*head, (late, size, True)]


@dataclass(slots=True)
class FollowedLines:
    """The records of one file."""

    path: Path
    """The file."""
    tail_bytes: int | None = None
    """Only the end of the file counts; None: all of it, within the limits of read_json_lines."""
    most_bytes: int = MOST_BYTES
    """Of a larger file its beginning and its end count."""
    change_count: int = 0
    """How often a read found the file changed, come or gone."""
    _file: GrowingFile = field(init=False)
    # The first lines of a long file and the last ones: the offset, the length, the record or None, whether there is text without a record.
    _first: list[tuple[int, int, dict[str, Any] | None, bool]] = field(default_factory=list)
    _last: deque[tuple[int, int, dict[str, Any] | None, bool]] = field(default_factory=deque)
    _found: Records = field(default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        half = self.most_bytes // 2
        self._file = GrowingFile(self.path, *((half, half) if self.tail_bytes is None else (0, self.tail_bytes)))

    def read(self) -> Records:
        """What `read_json_lines` returns, at the cost of what was appended since the last call.

        Holds:   equal to that of the same limits for a file within them, whatever was appended, cut, replaced or
                 removed between the calls, if a file that is written anew does not end in the same 256 bytes
        """
        try:
            appended = self._file.read()
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError)
            self._forget(([], [] if is_gone else [f"{self.path.name}: {error.strerror or error}"]))
        else:
            if appended is not None:
                self._take(appended)
        return list(self._found[0]), list(self._found[1])

    def _forget(self, found: Records) -> None:
        self._file.forget()
        self.change_count += found != self._found
        self._first, self._last, self._found = [], deque(), found

    def _take(self, appended: Appended) -> None:
        self.change_count += 1
        if appended.is_new:
            self._first, self._last = [], deque()
        for begin, line in appended.lines:
            record = record_of(line)
            kept = (begin, len(line), record, record is None and bool(line.strip()))
            is_first = begin + len(line) <= self._file.head_bytes and len(self._first) < MOST_LINES // 2
            (self._first if is_first else self._last).append(kept)
        self._drop(appended.size_bytes)
        self._found = self._all(appended)

    def _drop(self, size_bytes: int) -> None:
        """Drop lines between the beginning and the end of the file that count."""
        late = size_bytes - self._file.end_bytes
        while self._last and (
            len(self._last) > MOST_LINES // 2 or (late > self._file.head_bytes and self._last[0][0] <= late)
        ):
            self._last.popleft()

    def _all(self, appended: Appended) -> Records:
        kept = [*self._first, *self._last]
        records = [record for _, _, record, _ in kept if record is not None]
        bad = sum(is_bad for *_, is_bad in kept)
        left_out = appended.size_bytes - len(appended.rest) - sum(length for _, length, _, _ in kept)
        cut_off = []
        if appended.rest:
            record = record_of(appended.rest)
            if record is not None:
                records.append(record)
            else:
                cut_off.append(f"{self.path.name}: the last line is cut off")
        return records, [*unread(self.path, bad, len(records), left_out if self.tail_bytes is None else 0), *cut_off]


@dataclass(slots=True)
class FollowedFiles:
    """Stands for `read_json_lines` where the same files are read again and again: `evidence(..., read=followed.read_json_lines)`."""

    _files: dict[tuple[Path, int | None, int], FollowedLines] = field(default_factory=dict)

    def read_json_lines(self, path: Path, *, tail_bytes: int | None = None, most_bytes: int = MOST_BYTES) -> Records:
        """As the function of that name."""
        key = (path, tail_bytes, most_bytes)
        if key not in self._files:
            self._files[key] = FollowedLines(path, tail_bytes, most_bytes)
        return self._files[key].read()

    @property
    def change_count(self) -> int:
        """How often a read found a file changed, come or gone. While it stays, no record is new."""
        return sum(file.change_count for file in self._files.values())


def _stamp(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _between(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(max(end - begin, 0))


def _placed(data: bytes, begin: int) -> Iterator[tuple[int, bytes]]:
    for line in io.BytesIO(data):
        yield begin, line
        begin += len(line)
