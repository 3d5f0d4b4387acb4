"""Reads JSON lines that may be damaged: a torn line is counted, never raised."""

import io
import json
import os
from pathlib import Path
from typing import Any

from paceline.recording.plain_files import open_plain

# A job of four thousand ranks that starts four times has no more events, in a fifth of these bytes, and each a tenth of these values.
_MOST_BYTES = 32 << 20
_MOST_LINES = 40_000
_MOST_VALUES = 400_000


def read_json_lines(path: Path, *, tail_bytes: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a file, and in words what of it could not be read. A file that does not exist has neither.

    `tail_bytes` reads only the end, from the first whole line there.
    """
    try:
        data, left_out = _read(path, _MOST_BYTES if tail_bytes is None else tail_bytes)
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{path.name}: {error.strerror or error}"]
    start = _start_of_last_lines(data)
    records: list[dict[str, Any]] = []
    complaints: list[str] = []
    bad = 0
    # A line at a time: of all of them together a second copy would be as large as the file.
    lines = io.BytesIO(data)
    lines.seek(start)
    for line in lines:
        record = _record(line)
        if record is not None:
            records.append(record)
        elif not line.endswith(b"\n"):
            complaints.append(f"{path.name}: the last line is cut off")
        elif line.strip():
            bad += 1
    if bad:
        complaints.insert(0, f"{path.name}: {bad} of {bad + len(records)} lines cannot be read")
    if tail_bytes is None and (left_out := left_out + start):
        complaints.insert(0, f"{path.name}: {left_out / (1 << 20):.1f} MiB at its beginning were not read")
    return records, complaints


def _start_of_last_lines(data: bytes) -> int:
    """Where the last lines begin that are read."""
    start = len(data)
    for _ in range(_MOST_LINES + 1):
        start = data.rfind(b"\n", 0, start)
        if start < 0:
            return 0
    return start + 1


def _record(line: bytes) -> dict[str, Any] | None:
    if sum(line.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _read(path: Path, tail_bytes: int) -> tuple[bytes, int]:
    """The end of a file from its first whole line, and how many bytes were left out before."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= tail_bytes:
            return file.read(tail_bytes), 0
        file.seek(size - tail_bytes)
        return file.read(tail_bytes).partition(b"\n")[2], size - tail_bytes
