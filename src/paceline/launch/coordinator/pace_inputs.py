"""Keeps the unprocessed inputs of the step timing, so that a developer can judge the same stretch of training again.

The file is written only if PACELINE_KEEP_TEMPO_INPUTS is set, as `tempo_inputs.jsonl` in the run's directory. It has the telemetry lines
with the ranks' progress, the stamps of the flight recorders, and the times at which the step timing was computed. `bench/stretches.py`
cuts stretches from it.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paceline.diagnosis.slow.arrivals import Entry

VARIABLE = "PACELINE_KEEP_TEMPO_INPUTS"
FILE = "tempo_inputs.jsonl"


class PaceInputs:
    """Appends to one file in a run's directory. It does nothing without a directory, or if the variable is not set."""

    def __init__(self, directory: Path | None = None) -> None:
        self._path = directory / FILE if directory is not None and os.environ.get(VARIABLE) else None
        self._newest: dict[tuple[int, str], int] = {}

    def telemetry(self, host: str, t_ns: int, line: Mapping[str, Any]) -> None:
        """Write one telemetry line. `t_ns` is its time on the first host's clock."""
        self._append({"kind": "telemetry", "host": host, "at_ns": t_ns, "line": line})

    def trace(self, rank: int, entries: Iterable[Entry]) -> None:
        """Write a rank's newest collectives, except collectives that were written before."""
        new = []
        for entry in entries:
            known = self._newest.get((rank, entry.group), -1)
            if entry.created_ns is not None and entry.index > known:
                self._newest[rank, entry.group] = entry.index
                new.append(
                    (entry.group, entry.index, entry.operation, entry.dtype, entry.shape, entry.created_ns),
                )
        if new:
            self._append({"kind": "trace", "rank": rank, "entries": new})

    def turn(self, now_ns: int) -> None:
        """Note that the step timing is computed now."""
        self._append({"kind": "turn", "at_ns": now_ns})

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
