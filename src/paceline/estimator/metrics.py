"""Metrics as defined by SageMaker's metric_definitions: numbers that regular expressions find in the output of the ranks."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paceline.contract.metric_definitions import compiled
from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, LogName, log_files, streamed_logs
from paceline.recording.plain_files import read_plain
from paceline.recording.runs import newest_try

_STAMPS = re.compile(rb"(\d+)\s+(\d+)")


def metric_rows(run_dir: Path, definitions: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """One row per value, in the order of time: timestamp (Unix seconds, None if the log has no index), metric_name, value, rank."""
    wanted = compiled(definitions)
    rows: list[dict[str, Any]] = []
    for whose, time_ns, line in _lines(RunDirectory(newest_try(run_dir))):
        text = line.decode("utf-8", "replace")
        stamp = time_ns / 1e9 if time_ns is not None else None
        rows += [
            {"timestamp": stamp, "metric_name": one.name, "value": value, "rank": whose.rank}
            for one in wanted
            for value in one.values(text)
        ]
    return sorted(rows, key=lambda row: (row["timestamp"] is None, row["timestamp"] or 0.0))


def _lines(directory: RunDirectory) -> Iterator[tuple[LogName, int | None, bytes]]:
    for file in log_files((directory,), LogChoice()):
        stamps = _index(file.path.with_name(f"{file.path.name}.idx"))
        offset = 0
        for line in (*file.lines(), *filter(None, (file.rest(),))):
            yield file.name, _when(stamps, offset), line
            offset += len(line) + 1
    for stream in streamed_logs((directory,), LogChoice()):
        yield from stream.lines()


def _index(path: Path) -> list[tuple[int, int]]:
    """(offset, Unix ns) in the order of offsets; empty without an index."""
    try:
        lines = read_plain(path).splitlines()
    except OSError:
        return []
    pairs = [(int(found[2]), int(found[1])) for line in lines if (found := _STAMPS.fullmatch(line.strip()))]
    return sorted(pairs)


def _when(stamps: list[tuple[int, int]], offset: int) -> int | None:
    """The latest stamp at or before this offset."""
    earlier = [time_ns for begin, time_ns in stamps if begin <= offset]
    return earlier[-1] if earlier else (stamps[0][1] if stamps else None)
