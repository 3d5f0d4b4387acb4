"""Reads JSON lines that may be damaged: a torn line is counted, never raised."""

import io
import json
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from paceline.recording.plain_files import open_plain

# Of a longer file the beginning, where a run and its ranks begin, and the end: a job of hundreds of ranks that runs for days reports every
# half minute the step timing of each rank.
_MOST_BYTES = 32 << 20
_MOST_LINES = 32_000
_MOST_VALUES = 400_000


def read_json_lines(path: Path, *, tail_bytes: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a file, and texts about what could not be read. A file that does not exist has neither.

    `tail_bytes` reads only the end, from the first whole line there.
    """
    try:
        data, left_out = _read(path, tail_bytes)
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{path.name}: {error.strerror or error}"]
    records: list[dict[str, Any]] = []
    complaints: list[str] = []
    bad = 0
    # One line at a time, because a second copy of all lines would be as large as the file.
    first_end, last_begin = _ends(data)
    left_out += last_begin - first_end
    for line in chain(_lines(data, 0, first_end), _lines(data, last_begin, len(data))):
        record = _record(line)
        if record is not None:
            records.append(record)
        elif not line.endswith(b"\n"):
            complaints.append(f"{path.name}: the last line is cut off")
        elif line.strip():
            bad += 1
    if bad:
        complaints.insert(0, f"{path.name}: {bad} of {bad + len(records)} lines cannot be read")
    if tail_bytes is None and left_out:
        complaints.insert(0, f"{path.name}: {left_out / (1 << 20):.1f} MiB in its middle were not read")
    return records, complaints


def _ends(data: bytes) -> tuple[int, int]:
    """Where the first lines that are read end, and where the last begin; the same place if all lines are read."""
    first_end, last_begin = 0, len(data)
    for _ in range(_MOST_LINES // 2):
        first_end = data.find(b"\n", first_end) + 1
        if first_end == 0:
            return len(data), len(data)
    for _ in range(_MOST_LINES // 2 + 1):
        last_begin = data.rfind(b"\n", 0, last_begin)
    return first_end, max(first_end, last_begin + 1)


def _lines(data: bytes, begin: int, end: int) -> Iterator[bytes]:
    lines = io.BytesIO(data)
    lines.seek(begin)
    while lines.tell() < end:
        yield lines.readline()


def _record(line: bytes) -> dict[str, Any] | None:
    if sum(line.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _read(path: Path, tail_bytes: int | None) -> tuple[bytes, int]:
    """Whole lines of a file: all, its end, or its beginning and its end; and how many bytes were left out."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= (_MOST_BYTES if tail_bytes is None else tail_bytes):
            return file.read(size), 0
        head = b"" if tail_bytes is not None else file.read(_MOST_BYTES // 2).rpartition(b"\n")[0] + b"\n"
        end_bytes = _MOST_BYTES // 2 if tail_bytes is None else tail_bytes
        file.seek(size - end_bytes)
        data = head + file.read(end_bytes).partition(b"\n")[2]
        return data, size - len(data)
