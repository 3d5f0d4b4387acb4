"""Metrics as defined by SageMaker's metric_definitions: numbers that regular expressions find in the output of the ranks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.contract.metric_definitions import compiled
from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, chosen_lines
from paceline.recording.runs import newest_try


def metric_rows(run_dir: Path, definitions: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """One row per value, in the order of time: timestamp (Unix seconds, None if the log has no index), metric_name, value, rank."""
    wanted = compiled(definitions)
    rows: list[dict[str, Any]] = []
    for whose, time_ns, line in chosen_lines((RunDirectory(newest_try(run_dir)),), LogChoice()):
        text = line.decode("utf-8", "replace")
        stamp = time_ns / 1e9 if time_ns is not None else None
        rows += [
            {"timestamp": stamp, "metric_name": one.name, "value": value, "rank": whose.rank}
            for one in wanted
            for value in one.values(text)
        ]
    return sorted(rows, key=lambda row: (row["timestamp"] is None, row["timestamp"] or 0.0))
