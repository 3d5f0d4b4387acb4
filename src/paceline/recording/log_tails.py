"""The last lines of each rank's stderr, for a diagnosis."""

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, log_files, streamed_logs
from paceline.recording.plain_files import open_plain

TAIL_BYTES = 16 * 1024
_TAIL_LINES = 200


def stderr_tails(
    directories: Sequence[RunDirectory], attempt: int, *, tail_bytes: int = TAIL_BYTES
) -> tuple[dict[int, str], tuple[str, ...]]:
    """Rank -> the end of its stderr in one attempt, and texts about what could not be read."""
    choice = LogChoice(attempt=attempt, streams=frozenset({"err"}))
    tails: dict[int, str] = {}
    complaints: list[str] = []
    for file in log_files(directories, choice):
        try:
            tails[file.name.rank] = _end_of(file.path, tail_bytes)
        except OSError as error:
            complaints.append(f"stderr of rank {file.name.rank} on {file.name.host}: {error.strerror or error}")
    for streamed in streamed_logs(directories, choice):
        lines: dict[int, deque[bytes]] = {}
        for name, _, text in streamed.lines():
            if choice.takes(name):
                lines.setdefault(name.rank, deque(maxlen=_TAIL_LINES)).append(text)
        for rank, kept in lines.items():
            tails.setdefault(rank, b"\n".join(kept)[-tail_bytes:].decode("utf-8", "replace"))
    return tails, tuple(complaints)


def _end_of(path: Path, tail_bytes: int) -> str:
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - tail_bytes, 0))
        return file.read().decode("utf-8", "replace")
