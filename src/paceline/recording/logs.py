"""Finds and reads what ranks wrote: complete log files, and what other hosts streamed to the first one."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.facts import host_key
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import open_plain, read_plain

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

    def lines(self) -> Iterator[bytes]:
        """Whole lines since the last call, without their ends; if the file cannot be read, `unread` is the reason."""
        return (text for _, text in self._placed_lines())

    def stamped_lines(self) -> Iterator[tuple[int | None, bytes]]:
        """The same, each with the time at which it began to come (Unix ns, to a second); None: the log has no index."""
        stamps = _stamps(self._index)
        offsets = [offset for offset, _ in stamps]
        for offset, text in self._placed_lines():
            yield (stamps[max(bisect_right(offsets, offset) - 1, 0)][1] if stamps else None), text

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

    @property
    def _index(self) -> Path:
        return self.path.with_name(f"{self.path.name}.idx")

    def rest(self) -> bytes:
        """The text after the last line's end; used when no more text can come."""
        rest, self.partial = self.partial, b""
        return rest

    def skip_to(self, since_ns: int) -> bool:
        """Start at the first line that may have come at or after `since_ns`; False when no index says so."""
        offset = _offset_since(self._index, since_ns)
        if offset is None:
            return False
        try:
            self.offset = _line_start(self.path, offset)
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

    def lines(self) -> Iterator[tuple[LogName, int, bytes]]:
        """Lines since the last call: the rank's log, the time (Unix ns), and the text. A record may hold several lines."""
        raw = LogFile(LogName(0, 0, self.host, "out"), self.path, self.offset, self.partial)
        for line in raw.lines():
            try:
                record = json.loads(line)
                name = LogName(int(record["attempt"]), int(record["rank"]), self.host, _stream(record["stream"]))
                time_ns, text = int(record["t_ns"]), str(record["text"])
            except (ValueError, KeyError, TypeError):
                self.unread_lines += bool(line.strip())
                continue
            for part in text.removesuffix("\n").split("\n"):
                yield name, time_ns, part.encode("utf-8", "surrogateescape")
        self.offset, self.partial = raw.offset, raw.partial


def log_files(directories: Sequence[RunDirectory], choice: LogChoice) -> list[LogFile]:
    """The chosen complete logs, in the order of a run: by attempt, rank and stream, the same log once."""
    found: dict[LogName, LogFile] = {}
    for directory in directories:
        for path in directory.path.glob("hosts/*/attempt_*/rank_*.*"):
            match = _LOG_NAME.match(path.name)
            attempt = path.parent.name.removeprefix("attempt_")
            if match is None or not attempt.isdigit():
                continue
            name = LogName(int(attempt), int(match[1]), path.parent.parent.name, match[2])
            if choice.takes(name):
                found.setdefault(name, LogFile(name, path))
    # stdout before stderr, as the two are told apart everywhere else.
    return [found[name] for name in sorted(found, key=_reading_order)]


def streamed_logs(directories: Sequence[RunDirectory], choice: LogChoice) -> list[StreamedLogs]:
    """Streamed logs of hosts whose complete logs are in none of the directories."""
    complete = {path.parent.name for directory in directories for path in directory.path.glob("hosts/*/attempt_*")}
    found: dict[str, StreamedLogs] = {}
    for directory in directories:
        for path in directory.path.glob("hosts/*/peers/*.logs.jsonl"):
            host = path.name.removesuffix(".logs.jsonl")
            if host not in complete and choice.host in (None, host):
                found.setdefault(host, StreamedLogs(host, path))
    return [found[host] for host in sorted(found, key=host_key)]


def _reading_order(name: LogName) -> tuple[Any, ...]:
    return (name.attempt, name.rank, host_key(name.host), name.stream == "err")


def _stream(text: str) -> str:
    return {"stdout": "out", "stderr": "err"}.get(text, text)


def _offset_since(index: Path, since_ns: int) -> int | None:
    """Where the bytes begin that may have been written at or after `since_ns`; the end when there are none."""
    if not index.exists():
        return None
    for offset, time_ns in _stamps(index):
        if time_ns + INDEX_INTERVAL_NS > since_ns:
            return offset
    log = index.with_suffix("")
    return log.stat().st_size if log.exists() else None


def _stamps(index: Path) -> list[tuple[int, int]]:
    """(offset, Unix ns) of each entry, in the order of offsets; empty without an index."""
    try:
        lines = read_plain(index).splitlines()
    except OSError:
        return []
    return sorted((int(found[2]), int(found[1])) for line in lines if (found := _STAMP.fullmatch(line.strip())))


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
