"""What other hosts streamed to the first one, kept in files of its recording. One thread writes."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from paceline.recording.layout import RunDirectory
from paceline.recording.writer import JsonLines

PROGRESS_EVERY_LINES = 10


class PeerFiles:
    """One file for each host and kind ("telemetry", "logs"), opened with its first line."""

    def __init__(self, directory: RunDirectory, first_host: str) -> None:
        self._directory = directory
        self._first_host = first_host
        self._lines: Counter[str] = Counter()
        self._files: dict[tuple[str, str], JsonLines] = {}

    def append(self, host: str, kind: str, lines: Sequence[dict[str, Any]]) -> None:
        """Keep these lines; may wait for the disk."""
        if (host, kind) not in self._files:
            self._files[host, kind] = JsonLines(self._directory.peer_file(self._first_host, host, kind))
        for line in lines:
            self._files[host, kind].append(self._thinned(host, line))

    def _thinned(self, host: str, line: dict[str, Any]) -> dict[str, Any]:
        """The line as it is kept here: totals of many ranks every second would outweigh everything else, and only grow."""
        self._lines[host] += 1
        whole = line.get("final", True) or self._lines[host] % PROGRESS_EVERY_LINES == 0
        left_out = {"final"} if whole else {"final", "progress"}
        return {name: value for name, value in line.items() if name not in left_out}
