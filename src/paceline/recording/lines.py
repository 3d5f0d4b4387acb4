"""Reads JSON lines that may be damaged: a torn line is counted, never raised."""

import json
import os
from pathlib import Path
from typing import Any

from paceline.recording.plain_files import open_plain

# The events of a long job of thousands of ranks are a tenth of that, and one of them has a tenth of these values.
_MOST_BYTES = 32 << 20
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
    whole, _, last = data.rpartition(b"\n")
    records: list[dict[str, Any]] = []
    bad = 0
    for line in whole.split(b"\n"):
        record = _record(line)
        if record is not None:
            records.append(record)
        elif line.strip():
            bad += 1
    complaints = [f"{path.name}: {bad} of {bad + len(records)} lines cannot be read"] if bad else []
    if left_out and tail_bytes is None:
        complaints.append(f"{path.name}: {left_out >> 20} MiB at its beginning were not read")
    if last.strip():
        record = _record(last)
        if record is not None:
            records.append(record)
        else:
            complaints.append(f"{path.name}: the last line is cut off")
    return records, complaints


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
