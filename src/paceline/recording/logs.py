"""Finds and reads what ranks wrote: complete log files, and what other hosts streamed to the first one."""

import json
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.facts import host_key
from paceline.recording.clocks import HostClocks
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import open_plain

_LOG_NAME = re.compile(r"rank_(\d+)\.(out|err)\Z")
_CHUNK_BYTES = 1 << 20
_STAMP = re.compile(rb"(\d+)\s+(\d+)")
INDEX_INTERVAL_NS = 1_000_000_000
"""The agent notes a file's length at most this often, so that an index entry speaks for the bytes of so long a time."""


@dataclass(frozen=True, slots=True, order=True)
class LogName:
    """Which output a log is. The order is that of reading a run from its start."""

    attempt: int
    """Attempt of the rank."""
    rank: int
    """Global rank."""
    host: str
    """Host of the rank."""
    stream: str
    """"out" or "err"."""


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which logs are wanted. None is all."""

    ranks: frozenset[int] | None = None
    """Global ranks."""
    host: str | None = None
    """Name of the host."""
    attempt: int | None = None
    """Number of the attempt."""
    streams: frozenset[str] = frozenset({"out", "err"})
    """"out" and "err", or one of them."""

    def takes(self, name: LogName) -> bool:
        return (
            (self.ranks is None or name.rank in self.ranks)
            and (self.host is None or name.host == self.host)
            and (self.attempt is None or name.attempt == self.attempt)
            and name.stream in self.streams
        )


@dataclass(slots=True)
class LogIndex:
    """When the bytes of one log came, as its agent noted it, read on from where the last read ended."""

    path: Path
    """The index, which may not be there."""
    ahead_ns: int = 0
    """The clock of the log's host minus the first host's."""
    _offsets: list[int] = field(default_factory=list)
    _times_ns: list[int] = field(default_factory=list)
    _read_bytes: int = 0

    def read(self) -> bool:
        """Take what came since the last call. Returns whether there is any entry that can be read."""
        try:
            with open_plain(self.path) as file:
                file.seek(self._read_bytes)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return False
        self._read_bytes += len(whole) + len(newline)
        for line in whole.splitlines():
            # A smaller offset than the one before is no entry of an agent.
            found = _STAMP.fullmatch(line.strip())
            if found is not None and (not self._offsets or int(found[2]) >= self._offsets[-1]):
                self._times_ns.append(int(found[1]) - self.ahead_ns)
                self._offsets.append(int(found[2]))
        return bool(self._offsets)

    def time_ns(self, offset: int) -> int | None:
        """When the byte at `offset` came (Unix ns by the first host's clock, to a second); None: there is no index."""
        return self._times_ns[max(bisect_right(self._offsets, offset) - 1, 0)] if self._times_ns else None

    def offset_since(self, since_ns: int) -> int | None:
        """Where the bytes begin that may have come at or after `since_ns`; None: all came before."""
        late = (at for at, time_ns in enumerate(self._times_ns) if time_ns + INDEX_INTERVAL_NS > since_ns)
        first = next(late, None)
        return None if first is None else self._offsets[first]


@dataclass(slots=True)
class LogFile:
    """One rank's stream on this file system, read on from where the last read ended."""

    name: LogName
    """Which output it is."""
    path: Path
    """The file."""
    offset: int = 0
    """Where the next read begins."""
    partial: bytes = b""
    """The beginning of a line that is not complete yet."""
    unread: str = ""
    """Why the file cannot be read; "": it can."""
    ahead_ns: int = 0
    """The clock of its host minus the first host's: times are put right by it."""
    _index: LogIndex = field(init=False)

    def __post_init__(self) -> None:
        self._index = LogIndex(self.path.with_name(f"{self.path.name}.idx"), self.ahead_ns)

    def lines(self) -> Iterator[bytes]:
        """Whole lines since the last call, without their ends; if the file cannot be read, `unread` is the reason."""
        return (text for _, text in self._placed_lines())

    def stamped_lines(self) -> Iterator[tuple[int | None, bytes]]:
        """The same, each with the time at which it began to come (Unix ns, to a second); None: the log has no index."""
        self._index.read()
        for offset, text in self._placed_lines():
            yield self._index.time_ns(offset), text

    def _placed_lines(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines since the last call, each with the offset of its first byte."""
        try:
            with open_plain(self.path) as file:
                file.seek(self.offset)
                while chunk := file.read(_CHUNK_BYTES):
                    begin = self.offset - len(self.partial)
                    self.offset += len(chunk)
                    *whole, self.partial = (self.partial + chunk).split(b"\n")
                    for text in whole:
                        yield begin, text
                        begin += len(text) + 1
        except FileNotFoundError:
            return
        except OSError as error:
            self.unread = error.strerror or str(error)

    def rest(self) -> bytes:
        """The text after the last line's end; used when no more text can come."""
        rest, self.partial = self.partial, b""
        return rest

    def stamped_rest(self) -> tuple[int | None, bytes]:
        """The same with the time at which it began to come, as stamped_lines has it."""
        return self._index.time_ns(self.offset - len(self.partial)), self.rest()

    def skip_to(self, since_ns: int) -> bool:
        """Start at the first line that may have come at or after `since_ns`; False when no index says so."""
        if not self._index.read():
            return False
        try:
            offset = self._index.offset_since(since_ns)
            self.offset = self.path.stat().st_size if offset is None else _line_start(self.path, offset)
        except OSError as error:
            self.unread = error.strerror or str(error)
        return True


@dataclass(slots=True)
class StreamedLogs:
    """Lines with their times that one other host streamed to the first host. Some lines may be missing."""

    host: str
    """The other host."""
    path: Path
    """The file."""
    offset: int = 0
    """Where the next read begins."""
    partial: bytes = b""
    """The beginning of a line that is not complete yet."""
    unread_lines: int = field(default=0)
    """Lines that could not be read."""
    ahead_ns: int = 0
    """The clock of its host minus the first host's: times are put right by it."""

    def lines(self) -> Iterator[tuple[LogName, int, bytes]]:
        """Lines since the last call: the rank's log, the time (Unix ns), and the text. A record may hold several lines."""
        raw = LogFile(LogName(0, 0, self.host, "out"), self.path, self.offset, self.partial)
        for line in raw.lines():
            try:
                record = json.loads(line)
                name = LogName(int(record["attempt"]), int(record["rank"]), self.host, _stream(record["stream"]))
                time_ns, text = int(record["t_ns"]) - self.ahead_ns, str(record["text"])
            except (ValueError, KeyError, TypeError):
                self.unread_lines += bool(line.strip())
                continue
            for part in text.removesuffix("\n").split("\n"):
                yield name, time_ns, part.encode("utf-8", "surrogateescape")
        self.offset, self.partial = raw.offset, raw.partial


def log_files(
    directories: Sequence[RunDirectory], choice: LogChoice, clocks: HostClocks | None = None
) -> list[LogFile]:
    """The chosen complete logs, in the order of a run: by attempt, rank and stream, the same log once.

    `clocks` puts the times of other hosts right.
    """
    found: dict[LogName, LogFile] = {}
    for directory in directories:
        for path in directory.path.glob("hosts/*/attempt_*/rank_*.*"):
            match = _LOG_NAME.match(path.name)
            attempt = path.parent.name.removeprefix("attempt_")
            if match is None or not attempt.isdigit():
                continue
            name = LogName(int(attempt), int(match[1]), path.parent.parent.name, match[2])
            if choice.takes(name):
                found.setdefault(name, LogFile(name, path, ahead_ns=_ahead_ns(clocks, name.host)))
    # stdout before stderr, as the two are told apart everywhere else.
    return [found[name] for name in sorted(found, key=_reading_order)]


def streamed_logs(
    directories: Sequence[RunDirectory], choice: LogChoice, clocks: HostClocks | None = None
) -> list[StreamedLogs]:
    """Streamed logs of hosts whose complete logs are in none of the directories. `clocks` puts their times right."""
    complete = {path.parent.name for directory in directories for path in directory.path.glob("hosts/*/attempt_*")}
    found: dict[str, StreamedLogs] = {}
    for directory in directories:
        for path in directory.path.glob("hosts/*/peers/*.logs.jsonl"):
            host = path.name.removesuffix(".logs.jsonl")
            if host not in complete and choice.host in (None, host):
                found.setdefault(host, StreamedLogs(host, path, ahead_ns=_ahead_ns(clocks, host)))
    return [found[host] for host in sorted(found, key=host_key)]


def chosen_lines(
    directories: Sequence[RunDirectory], choice: LogChoice, tail: int | None = None
) -> Iterator[tuple[LogName, int | None, bytes]]:
    """What the ranks have written until now, log after log: the log, the time (Unix ns, or None), the line, also one without an end.

    `tail`: only the last lines of each log; None: all.
    """
    for file in log_files(directories, choice):
        lines = deque(file.stamped_lines(), tail)
        time_ns, rest = file.stamped_rest()
        if rest:
            lines.append((time_ns, rest))
        yield from ((file.name, *line) for line in lines)
    for stream in streamed_logs(directories, choice):
        logs: dict[LogName, deque[tuple[int, bytes]]] = {}
        for name, time_ns, text in stream.lines():
            if choice.takes(name):
                logs.setdefault(name, deque(maxlen=tail)).append((time_ns, text))
        for name in sorted(logs, key=_reading_order):
            yield from ((name, *line) for line in logs[name])


def _ahead_ns(clocks: HostClocks | None, host: str) -> int:
    return 0 if clocks is None else clocks.offset_ns(host)


def _reading_order(name: LogName) -> tuple[Any, ...]:
    return (name.attempt, name.rank, host_key(name.host), name.stream == "err")


def _stream(text: str) -> str:
    return {"stdout": "out", "stderr": "err"}.get(text, text)


def _line_start(path: Path, offset: int) -> int:
    with open_plain(path) as file:
        while offset > 0:
            start = max(offset - 4096, 0)
            file.seek(start)
            before, newline, _ = file.read(offset - start).rpartition(b"\n")
            if newline:
                return start + len(before) + 1
            offset = start
    return 0
