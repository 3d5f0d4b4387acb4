"""Reads JSON lines that may be damaged: a torn line is counted, never raised."""

import io
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from paceline.recording.plain_files import open_plain

# Of a longer file the beginning, where a run and its ranks begin, and the end: a job of hundreds of ranks that runs for days reports every
# half minute the step timing of each rank.
MOST_BYTES = 32 << 20
# Of events, to answer about now: the placement of thousands of ranks, and what was told last.
RECENT_BYTES = 8 << 20
MOST_LINES = 32_000
_MOST_VALUES = 400_000
# A number that Python can read and that arithmetic, a clock or a column of a page cannot take. No recorder writes one.
_MAY_BE_HUGE = re.compile(rb"[0-9]{20}|[0-9][eE]\+?[0-9]{2}")
_MOST_WHOLE, _MOST_FRACTIONAL = 1 << 64, 1e100
Records = tuple[list[dict[str, Any]], list[str]]
"""The records of a file, and texts about what could not be read."""
ReadJsonLines = Callable[..., Records]
"""`read_json_lines`, or what stands for it where the same files are read again and again: `follow.FollowedFiles.read_json_lines`."""


def read_json_lines(path: Path, *, tail_bytes: int | None = None, most_bytes: int = MOST_BYTES) -> Records:
    """The records of a file, and texts about what could not be read. A file that does not exist has neither.

    `tail_bytes` reads only the end, from the first whole line there. `most_bytes`: of a larger file its beginning and its end are read.
    """
    try:
        data, left_out = _read(path, tail_bytes, most_bytes)
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
        record = record_of(line)
        if record is not None:
            records.append(record)
        elif not line.endswith(b"\n"):
            complaints.append(f"{path.name}: the last line is cut off")
        elif line.strip():
            bad += 1
    return records, [*unread(path, bad, len(records), left_out if tail_bytes is None else 0), *complaints]


def unread(path: Path, bad: int, good: int, left_out_bytes: int) -> list[str]:
    """Texts about what was not read of a file: bytes in its middle, and lines."""
    left_out = f"{path.name}: {left_out_bytes / (1 << 20):.1f} MiB in its middle were not read"
    return [
        *([left_out] if left_out_bytes else []),
        *([f"{path.name}: {bad} of {bad + good} lines cannot be read"] if bad else []),
    ]


def _ends(data: bytes) -> tuple[int, int]:
    """Where the first lines that are read end, and where the last begin; the same place if all lines are read."""
    first_end, last_begin = 0, len(data)
    for _ in range(MOST_LINES // 2):
        first_end = data.find(b"\n", first_end) + 1
        if first_end == 0:
            return len(data), len(data)
    for _ in range(MOST_LINES // 2 + 1):
        last_begin = data.rfind(b"\n", 0, last_begin)
    return first_end, max(first_end, last_begin + 1)


def _lines(data: bytes, begin: int, end: int) -> Iterator[bytes]:
    lines = io.BytesIO(data)
    lines.seek(begin)
    while lines.tell() < end:
        yield lines.readline()


def record_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None: there is none, or one that was made to cost."""
    if sum(line.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
        return None
    return json_object(line)


def json_object(text: bytes) -> dict[str, Any] | None:
    """The one door for a JSON object of a recording; None: there is none. Numbers that are none, or too large to count with, are null."""
    is_bounded = _MAY_BE_HUGE.search(text) is not None
    try:
        found = json.loads(
            text,
            parse_constant=_not_known,
            parse_int=_whole if is_bounded else None,
            parse_float=_fractional if is_bounded else None,
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _whole(digits: str) -> int | None:
    number = int(digits) if len(digits) <= 21 else _MOST_WHOLE
    return number if abs(number) < _MOST_WHOLE else None


def _fractional(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) and abs(number) < _MOST_FRACTIONAL else None


def _not_known(name: str) -> None:
    """In place of NaN and Infinity."""


def _read(path: Path, tail_bytes: int | None, most_bytes: int) -> tuple[bytes, int]:
    """Whole lines of a file: all, its end, or its beginning and its end; and how many bytes were left out."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= (most_bytes if tail_bytes is None else tail_bytes):
            return file.read(size), 0
        head = b"" if tail_bytes is not None else file.read(most_bytes // 2).rpartition(b"\n")[0] + b"\n"
        end_bytes = most_bytes // 2 if tail_bytes is None else tail_bytes
        file.seek(size - end_bytes)
        data = head + file.read(end_bytes).partition(b"\n")[2]
        return data, size - len(data)
