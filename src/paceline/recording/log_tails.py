"""The last lines of what each rank wrote: of its stderr for a diagnosis, of all of it for a page."""

import os
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.recording.clocks import HostClocks
from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, LogFile, log_files, streamed_logs
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


def _as_shown(text: str) -> str:
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _end_of(path: Path, tail_bytes: int) -> str:
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - tail_bytes, 0))
        return file.read().decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The end of what a rank wrote."""

    rank: int
    """Global rank."""
    host: str
    """Its host."""
    attempt: int
    """The attempt, counted from 0."""
    stream: str
    """"out" or "err"."""
    text: str
    """The last lines."""
    left_out_bytes: int
    """Bytes before them."""
    line_times: tuple[tuple[int, int], ...] = ()
    """(line, Unix ns) where lines begin that came later than those before, to a few seconds; lines count from 0. (): not known."""


def log_ends(
    directories: Sequence[RunDirectory],
    attempt: int,
    first: Collection[int],
    *,
    most_bytes: int,
    stream_bytes: int,
    clocks: HostClocks | None = None,
) -> tuple[list[LogEnd], list[str]]:
    """The ends of the ranks' output in one attempt, those of the ranks in `first` first, and texts about what is not there.

    `most_bytes`: of all of them together; `stream_bytes`: of one. `clocks`: puts the times of other hosts right.
    """
    choice = LogChoice(attempt=attempt)
    files = sorted(
        log_files(directories, choice, clocks),
        key=lambda file: (file.name.rank not in first, file.name.stream == "out"),
    )
    found, complaints, left = [], [], most_bytes
    for place, file in enumerate(files):
        name = file.name
        try:
            size = file.path.stat().st_size
            taken = min(size, stream_bytes)
            if taken > left:
                complaints.append(f"the output of {len(files) - place} more logs: paceline logs prints them")
                break
            lines = _last_lines(file, size - taken)
        except OSError as error:
            complaints.append(f"std{name.stream} of rank {name.rank} on {name.host}: {error.strerror or error}")
            continue
        text = b"\n".join(line for _, line in lines).decode("utf-8", "replace")
        if text.strip():
            # A progress bar is shown as a terminal shows it last.
            text = _as_shown(text)
            left -= taken
            found.append(
                LogEnd(
                    rank=name.rank,
                    host=name.host,
                    attempt=name.attempt,
                    stream=name.stream,
                    text=text,
                    left_out_bytes=size - taken,
                    line_times=_line_times(lines),
                )
            )
    complaints += [
        f"the output of {one.host}: paceline logs prints what it streamed" for one in streamed_logs(directories, choice)
    ]
    return found, complaints


def _last_lines(file: LogFile, from_byte: int) -> list[tuple[int | None, bytes]]:
    """The lines from this byte on, each with its time if that is known; without the first one if it is cut.

    Raises:  OSError: the log cannot be read
    """
    file.offset = from_byte
    lines = [*file.stamped_lines(), file.stamped_rest()]
    if file.unread:
        raise OSError(file.unread)
    return lines[1:] if from_byte else lines


def _line_times(lines: Sequence[tuple[int | None, bytes]]) -> tuple[tuple[int, int], ...]:
    times = [time_ns for time_ns, _ in lines]
    return tuple(
        (place, time_ns)
        for place, (time_ns, before) in enumerate(zip(times, [None, *times], strict=False))
        if time_ns is not None and time_ns != before
    )
