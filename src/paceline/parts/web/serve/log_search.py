"""The newest lines of logs that have some words. An answer reads so much of the logs and no more, and says what it left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.recording.clocks import HostClocks
from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, LogFile, LogName, StreamedLogs, log_files, streamed_logs
from paceline.views.report.markup import without_controls

SCHEMA = "paceline.log_lines/1"
_MOST_BYTES = 8 << 20
_MOST_LINE_CHARACTERS = 4000
Line = tuple[LogName, int | None, bytes]


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for."""

    choice: LogChoice
    """In which logs."""
    words: tuple[str, ...] = ()
    """A line must have all of them, in letters of any size."""
    since_ns: int | None = None
    """Lines that came before are left out, as far as it is known when they came."""
    limit: int = 500
    """So many lines, the newest ones."""


def found_lines(directories: Sequence[Path], search: Search, clocks: HostClocks) -> dict[str, Any]:
    """The lines, the oldest first by the first host's clock, and what was not read, in words.

    Holds:   at most `limit` lines; each has every word
    """
    places = [RunDirectory(path) for path in directories]
    left_out: list[str] = []
    words = [word.lower() for word in search.words]
    lines = [line for line in _lines(places, search, clocks, left_out) if _has_all(line[2], words)]
    # The lines of one log stay in their order where they came in the same second.
    lines.sort(key=lambda line: line[1] or 0)
    if len(lines) > search.limit:
        left_out.append(f"{len(lines) - search.limit} earlier lines")
    return {"schema": SCHEMA, "lines": [_plain(line) for line in lines[-search.limit :]], "left_out": left_out}


def _lines(places: Sequence[RunDirectory], search: Search, clocks: HostClocks, left_out: list[str]) -> Iterator[Line]:
    files = log_files(places, search.choice, clocks)
    share = _MOST_BYTES // max(len(files), 1)
    for file in files:
        begun = search.since_ns is not None and file.skip_to(search.since_ns)
        try:
            size = file.path.stat().st_size
        except OSError as error:
            left_out.append(f"{_of(file)}: {error.strerror or error}")
            continue
        if cut := _cut(file, size, share):
            left_out.append(f"the first {cut / (1 << 20):.1f} MiB of {_of(file)}: paceline logs prints all")
        of_file = [(file.name, t_ns, text) for t_ns, text in file.stamped_lines()]
        t_ns, rest = file.stamped_rest()
        yield from of_file[1 if cut else 0 :]
        if rest:
            yield (file.name, t_ns, rest)
        if file.unread:
            left_out.append(f"{_of(file)}: {file.unread}")
        elif search.since_ns is not None and not begun and of_file:
            left_out.append(f"when the lines of {_of(file)} came is not known")
    for stream in streamed_logs(places, search.choice, clocks):
        if _cut(stream, stream.path.stat().st_size, _MOST_BYTES):
            left_out.append(f"what {stream.host} streamed at first: paceline logs prints all")
        for name, came_ns, text in stream.lines():
            if search.choice.takes(name) and (search.since_ns is None or came_ns >= search.since_ns):
                yield (name, came_ns, text)


def _cut(file: LogFile | StreamedLogs, size_bytes: int, most_bytes: int) -> int:
    """Begin so near to the end of the file, and say how many bytes are left out."""
    cut = max(size_bytes - most_bytes - file.offset, 0)
    file.offset += cut
    return cut


def _of(file: LogFile) -> str:
    return f"std{file.name.stream} of rank {file.name.rank} on {file.name.host}"


def _has_all(text: bytes, words: Sequence[str]) -> bool:
    lowered = text.decode("utf-8", "replace").lower() if words else ""
    return all(word in lowered for word in words)


def _plain(line: Line) -> dict[str, Any]:
    name, t_ns, text = line
    # A progress bar is shown as a terminal shows it last.
    shown = without_controls(text.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace"))
    if len(shown) > _MOST_LINE_CHARACTERS:
        shown = f"{shown[:_MOST_LINE_CHARACTERS]} [{len(shown) - _MOST_LINE_CHARACTERS} more characters]"
    return {
        "rank": name.rank,
        "host": name.host,
        "attempt": name.attempt,
        "stream": name.stream,
        "t_ns": t_ns,
        "text": shown,
    }
