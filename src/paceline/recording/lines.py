"""Reads JSON lines that may be damaged: a torn line is counted, never raised."""

import json
import os
from pathlib import Path
from typing import Any

from paceline.recording.plain_files import open_plain


def read_json_lines(path: Path, *, tail_bytes: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a file, and in words what of it could not be read. A file that does not exist has neither.

    `tail_bytes` reads only the end, from the first whole line there.
    """
    try:
        data = _read(path, tail_bytes)
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
    if last.strip():
        record = _record(last)
        if record is not None:
            records.append(record)
        else:
            complaints.append(f"{path.name}: the last line is cut off")
    return records, complaints


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _read(path: Path, tail_bytes: int | None) -> bytes:
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if tail_bytes is None or size <= tail_bytes:
            return file.read()
        file.seek(size - tail_bytes)
        return file.read().partition(b"\n")[2]
