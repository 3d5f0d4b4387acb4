"""Writes the agent's files of a recording: JSON lines that outlive a crash and a full disk. Reads nothing back."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.atomic_write import write_whole
from paceline.recording.fact_json import to_json
from paceline.recording.plain_files import OTHERS_READ, make_folder, open_plain, write_plain

LINES_LOST = "lines_lost"


class JsonLines:
    """An append-only file of JSON objects, one a line, with this process as its only writer.

    Holds: after any append the file, read up to its last newline, has only whole lines and lines a reader skips.
    A disk that is full or gone never raises: the line is counted in `lost`, and the first line that fits again is
    preceded by one `lines_lost` record saying how many are missing.
    """

    def __init__(self, path: Path | str, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.path = Path(path)
        self.lost = 0
        self._clock_ns = clock_ns
        self._unsaid = 0
        self._torn = False
        self._file = -1

    def append(self, record: dict[str, Any]) -> bool:
        """Whether the record reached the file; False means that it was counted as lost."""
        if self._unsaid and self._write(_line({"t_ns": self._clock_ns(), "event": LINES_LOST, "count": self._unsaid})):
            self._unsaid = 0
        if self._write(_line(record)):
            return True
        self.lost += 1
        self._unsaid += 1
        return False

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: bytes) -> bool:
        try:
            file = self._open()
            # A line that was truncated, by a full disk or an agent's end, is ended first, so that it damages only itself.
            data = b"\n" + line if self._torn else line
            written = os.write(file, data)
        except OSError:
            return False
        self._torn = self._torn if written == 0 else written < len(data)
        return written == len(data)

    def _open(self) -> int:
        if self._file < 0:
            make_folder(self.path.parent)
            self._file = write_plain(self.path, os.O_WRONLY | os.O_APPEND)
            self._torn = _ends_inside_a_line(self.path)
        return self._file


class EventLog(JsonLines):
    """events.jsonl: what happened to the run, in the words of the recording's event names."""

    def record(self, event: str, **fields: Any) -> dict[str, Any]:
        """The record as written, so that the caller can stream the same one elsewhere.

        Holds: a `t_ns` among the fields is kept; otherwise it is now
        """
        record = {"t_ns": fields.pop("t_ns", None) or self._clock_ns(), "event": event, **fields}
        self.append(record)
        return record


def append_whole_records(path: Path, records: bytes, record_bytes: int) -> None:
    """Append records of one size to a file, with this process as its only writer. A record that was written in part is overwritten.

    Raises:  OSError: the disk refused them; no reader of whole records sees any of them twice if they are appended again
    """
    make_folder(path.parent)
    file = write_plain(path, os.O_WRONLY)
    try:
        whole = os.lseek(file, 0, os.SEEK_END) // record_bytes * record_bytes
        os.lseek(file, whole, os.SEEK_SET)
        try:
            written = os.write(file, records)
            if written < len(records):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        except OSError:
            os.ftruncate(file, whole)
            raise
    finally:
        os.close(file)


def write_json(path: Path, value: Any, *, mode: int = OTHERS_READ, indent: int | None = 1) -> None:
    """A whole file at once: a reader sees the old one, the new one or none, never half of it. `mode`: as far as the umask allows.

    Raises:  OSError: the disk refused it; nothing is left behind
    """
    make_folder(path.parent)
    write_whole(path, to_json(value, indent=indent) + "\n", mode=mode)


def _line(record: dict[str, Any]) -> bytes:
    return to_json(record).encode() + b"\n"


def _ends_inside_a_line(path: Path) -> bool:
    with open_plain(path) as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"
