"""Copies the output of every rank from its pipes to complete log files and, if the options say so, to the terminal.

One thread does this, so that a terminal that does not read (or a slow disk) never delays supervision. This thread is also the only
writer of the terminal: it writes paceline's own messages too, and the output of the agents of further hosts on this machine. No line
of the terminal holds text of two streams (console.py).
"""

import fcntl
import os
import select
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from paceline.launch.agent.console import ALONE_SECONDS, ConsoleLines
from paceline.recording.plain_files import make_folder, write_plain
from paceline.terminal_text import visible

_CHUNK_BYTES = 65536
TAIL_BYTES = 65536
# Of a longer line the filtered copy has all: it is not looked at.
LONGEST_FILTERED_BYTES = 1 << 20
_INDEX_INTERVAL_NS = 1_000_000_000


@dataclass(slots=True)
class Destination:
    """Where one stream of one rank goes."""

    log_file: Path
    """The complete log in the recording."""
    console_fd: int | None
    """Descriptor of the terminal, 1 or 2; None: the stream is not shown on the terminal."""
    prefix: bytes = b""
    """The prefix of each of the stream's lines on the terminal."""
    extra_file: Path | None = None
    """A second complete log, below torchrun's --log-dir; None: there is none."""
    filtered_file: Path | None = None
    """The file for copies of the lines that match `filters`; None: there is none."""
    filters: tuple[str, ...] = ()
    """Filter texts. A line is copied if it contains one of them."""


@dataclass(slots=True)
class _Stream:
    """One stream of one rank, with its open files."""

    pipe: int
    """Descriptor from which the stream is read."""
    rank: int
    """Global rank."""
    name: str
    """"out" or "err"."""
    destination: Destination
    """The files and the terminal to which the stream goes."""
    files: list[IO[bytes]]
    """The complete logs."""
    index: IO[bytes]
    """Pairs of a time and an offset in the log, at most one pair per second."""
    filtered: IO[bytes] | None
    """The file of matching lines; None: there is none."""
    filters: tuple[bytes, ...] = ()
    """A line is copied to `filtered` if it contains one of them."""
    tail: deque[bytes] = field(default_factory=deque)
    """The newest chunks of the stream, about TAIL_BYTES in total."""
    tail_bytes: int = 0
    """Number of bytes in `tail`."""
    written_bytes: int = 0
    """Number of bytes written to the log."""
    indexed_ns: int = 0
    """When the newest pair was written to `index`, in Unix ns."""
    unfiltered: bytearray = field(default_factory=bytearray)
    """The start of an unfinished line. Whether the line matches is not known yet."""
    in_long_line: bool = False
    """The line that is read now is longer than what is looked at, so the rest of it is copied too."""
    long_lines: int = 0
    """Number of lines that were copied to `filtered` and not looked at."""
    lost_bytes: int = 0
    """Number of bytes that could not be written to the files."""
    ended: bool = False
    """No process has the stream open any more, and all of it was written."""

    def take(self, chunk: bytes) -> None:
        """Write a chunk to the logs, and its matching lines to the filtered copy."""
        _write_log(self, chunk)
        _remember(self, chunk)
        _filter(self, chunk)

    def end(self) -> None:
        _filter(self, b"", ended=True)
        os.close(self.pipe)
        self.ended = True
        for file in [*self.files, self.index, *([self.filtered] if self.filtered else [])]:
            try:
                file.close()
            except OSError:
                self.lost_bytes += 1


@dataclass(slots=True)
class _Relay:
    """The output of another agent on this machine. That agent keeps its own logs."""

    pipe: int
    """Descriptor from which the other agent's output is read."""
    console_fd: int
    """Descriptor of the terminal to which the output is written."""
    prefix: bytes = b""
    """The prefix of each of its lines."""

    def end(self) -> None:
        os.close(self.pipe)


class LogTails:
    """The output since the last call of `take`, per rank and stream, up to a bound. The complete logs are in files."""

    def __init__(self, bound_bytes: int = TAIL_BYTES) -> None:
        self._bound_bytes = bound_bytes
        self._lock = threading.Lock()
        self._texts: dict[tuple[int, str], bytearray] = {}

    def add(self, rank: int, stream: str, chunk: bytes) -> None:
        """Keep a chunk. The pump's thread calls this. Beyond the bound the oldest bytes are dropped."""
        with self._lock:
            kept = self._texts.setdefault((rank, stream), bytearray())
            kept += chunk
            del kept[: max(0, len(kept) - self._bound_bytes)]

    def take(self) -> list[tuple[int, str, str]]:
        """(rank, stream, text) of everything since the last call."""
        with self._lock:
            texts, self._texts = self._texts, {}
        return [(rank, stream, bytes(text).decode(errors="replace")) for (rank, stream), text in texts.items()]


class Pump:
    """The thread that copies output. Start one per agent; `add` each stream of each rank; `drain` before reading tails; `close` at the end.

    `erase` and `repaint` are called before and after every write to the terminal, for a status line below the user's output.
    """

    def __init__(
        self,
        *,
        erase: Callable[[], bytes] = lambda: b"",
        repaint: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self._fresh: LogTails | None = None
        self._erase, self._repaint = erase, repaint
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._requests: deque[Callable[[], None]] = deque()
        self._streams: dict[int, _Stream] = {}
        self._relays: dict[int, _Relay] = {}
        self._tails: dict[tuple[int, str], _Stream] = {}
        self._closing = False
        self._console_broken: set[int] = set()
        self._one_console = _same_file(1, 2)
        self._consoles: dict[int, ConsoleLines] = {}
        # Whether the status line is on the terminal now.
        self._painted = False
        self._thread = threading.Thread(target=self._run, name="paceline-pump", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------- called by the agent

    def add(self, pipe: int, rank: int, name: str, destination: Destination) -> None:
        """Take over the read end of a rank's pipe. `name` is "out" or "err"."""
        stream = _open_stream(pipe, rank, name, destination)
        self._tails[(rank, name)] = stream
        self._ask(lambda: self._register(stream))

    def relay(self, pipe: int, console_fd: int, prefix: bytes = b"") -> None:
        """Also copy another agent's output from this pipe to the terminal. `drain` waits for its end only with `relays`."""
        self._ask(lambda: self._register(_Relay(pipe, console_fd, prefix)))

    def say(self, fd: int, text: str) -> None:
        """Write paceline's own message to the terminal, between lines of the user's output."""
        self._ask(lambda: self._say(fd, visible(text).encode(errors="replace")))

    def tail(self, rank: int, name: str) -> str:
        """The last 64 KiB of one rank's stream in the latest attempt."""
        return _tail(self._tails.get((rank, name)))

    def of_attempt(self) -> "AttemptOutput":
        """The output of the latest attempt, which can be read when another attempt has begun."""
        return AttemptOutput(self, dict(self._tails))

    def stream_to(self, tails: LogTails) -> None:
        """From now on also keep the output in `tails`, for the code that forwards it."""
        self._fresh = tails

    def lost_bytes(self) -> int:
        """Number of log bytes that could not be written (the disk is full), over all streams so far."""
        return sum(stream.lost_bytes for stream in self._tails.values())

    def long_lines(self) -> int:
        """Number of lines, of all streams so far, that are in a filtered copy because they were too long to be looked at."""
        return sum(stream.long_lines for stream in self._tails.values())

    def catch_up(self, rank: int, timeout_seconds: float = 2.0) -> None:
        """Wait until all output that the rank wrote before this call is in its logs and tails."""
        done = threading.Event()
        self._ask(lambda: self._read_all(rank, done))
        done.wait(timeout_seconds)

    def drain(self, timeout_seconds: float, *, relays: bool = False) -> bool:
        """Wait until every rank's pipe has ended; with `relays`, until every pipe has ended.

        Returns False if a pipe is still open after the timeout, because a process that outlived its rank holds it open.
        """
        deadline = time.monotonic() + timeout_seconds
        finished = threading.Event()
        while time.monotonic() < deadline:
            finished.clear()
            self._ask(finished.set)
            finished.wait(max(0.0, deadline - time.monotonic()))
            if not self._streams and not (relays and self._relays):
                return True
            finished.clear()
            threading.Event().wait(0.01)
        return False

    def close(self) -> None:
        """Write the output that has arrived, then end the thread and close the files."""
        self._closing = True
        self._ask(lambda: None)
        self._thread.join(timeout=5.0)

    # ---------------------------------------------------------------------------------------------- inside the thread

    def _ask(self, request: Callable[[], None]) -> None:
        self._requests.append(request)
        # A full pipe also wakes the thread. It becomes full if the terminal was not read for hours.
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        while not (self._closing and not self._requests):
            waiting = any(console.waiting for console in self._consoles.values())
            for key, _ in self._selector.select(ALONE_SECONDS if waiting else None):
                if key.fd == self._wake_read:
                    self._serve_requests()
                elif source := self._streams.get(key.fd) or self._relays.get(key.fd):
                    self._read(source)
            for fd, console in self._consoles.items():
                self._to_console(fd, console.due(time.monotonic()))
        for stream in list(self._streams.values()):
            self._end(stream)
        for relay in list(self._relays.values()):
            while self._read(relay):
                pass
            if relay.pipe in self._relays:
                self._end(relay)
        if self._console(2).line_open:
            self._to_console(2, self._console(2).between(b""))

    def _serve_requests(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass
        while self._requests:
            self._requests.popleft()()

    def _register(self, source: _Stream | _Relay) -> None:
        os.set_blocking(source.pipe, False)
        if isinstance(source, _Stream):
            self._streams[source.pipe] = source
        else:
            self._relays[source.pipe] = source
        self._selector.register(source.pipe, selectors.EVENT_READ)

    def _read_all(self, rank: int, done: threading.Event) -> None:
        for stream in [stream for stream in self._streams.values() if stream.rank == rank]:
            # Not until the pipe is empty: a process that writes without end keeps this thread from no other stream.
            left = fcntl.fcntl(stream.pipe, fcntl.F_GETPIPE_SZ)
            while left > 0 and (taken := self._read(stream)):
                left -= taken
        done.set()

    def _read(self, source: _Stream | _Relay) -> int:
        """Read one chunk; its size, 0: there is nothing to read now."""
        try:
            chunk = os.read(source.pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            chunk = b""
        if not chunk:
            self._end(source)
            return 0
        if isinstance(source, _Relay):
            self._show(source.console_fd, source.pipe, ("host", source.pipe), chunk, source.prefix)
            return len(chunk)
        source.take(chunk)
        if self._fresh is not None:
            self._fresh.add(source.rank, source.name, chunk)
        if source.destination.console_fd is not None:
            self._show(source.destination.console_fd, source.pipe, source.rank, chunk, source.destination.prefix)
        return len(chunk)

    def _show(self, fd: int, pipe: int, writer: Hashable, chunk: bytes, prefix: bytes = b"") -> None:
        if fd not in self._console_broken:
            self._to_console(fd, self._console(fd).take(pipe, writer, chunk, time.monotonic(), prefix=prefix))

    def _say(self, fd: int, text: bytes) -> None:
        if text:
            self._to_console(fd, self._console(fd).between(text))
        else:
            self._paint()

    def _console(self, fd: int) -> ConsoleLines:
        """The console lines of a descriptor. stdout and stderr share one object if both lead to the same terminal or file."""
        return self._consoles.setdefault(2 if fd == 1 and self._one_console else fd, ConsoleLines())

    def _to_console(self, fd: int, data: bytes) -> None:
        if not data or fd in self._console_broken:
            return
        try:
            if fd != 2 and not self._one_console:
                _write_all(fd, data)
                return
            if self._painted:
                _write_all(2, self._erase())
                self._painted = False
            _write_all(fd, data)
        except OSError:
            # The reader of our output has ended (`| head`). The ranks go on, and their logs are complete.
            self._console_broken.add(fd)
        self._paint()

    def _paint(self) -> None:
        """Update the status line. It is not painted while a line of the user's output is unfinished."""
        if 2 in self._console_broken:
            return
        try:
            if self._painted:
                _write_all(2, self._erase())
                self._painted = False
            if not self._console(2).line_open and (line := self._repaint()):
                _write_all(2, line)
                self._painted = True
        except OSError:
            self._console_broken.add(2)

    def _end(self, source: _Stream | _Relay) -> None:
        fd = source.console_fd if isinstance(source, _Relay) else source.destination.console_fd
        if fd is not None:
            self._to_console(fd, self._console(fd).end(source.pipe))
        self._streams.pop(source.pipe, None)
        self._relays.pop(source.pipe, None)
        self._selector.unregister(source.pipe)
        source.end()


class AttemptOutput:
    """The output of one attempt's ranks. It stays theirs when the pump copies the output of the next attempt."""

    def __init__(self, pump: Pump, streams: Mapping[tuple[int, str], _Stream]) -> None:
        self._pump = pump
        self._streams = streams

    def catch_up(self, rank: int) -> None:
        """Wait until all output that the rank wrote before this call is in its logs and tails."""
        self._pump.catch_up(rank)

    def tail(self, rank: int, name: str) -> str:
        """The last 64 KiB of one rank's stream."""
        return _tail(self._streams.get((rank, name)))

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until every rank's pipe has ended. Returns False if one is still open after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while not (done := all(stream.ended for stream in self._streams.values())) and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        return done


def _tail(stream: _Stream | None) -> str:
    return b"".join(list(stream.tail)).decode(errors="replace") if stream else ""


def _open_stream(pipe: int, rank: int, name: str, destination: Destination) -> _Stream:
    # The user's own place may be a link.
    extra = [_appending(destination.extra_file)] if destination.extra_file else []
    filtered = _appending(destination.filtered_file) if destination.filtered_file else None
    return _Stream(
        pipe=pipe,
        rank=rank,
        name=name,
        destination=destination,
        files=[_recording(destination.log_file), *extra],
        index=_recording(destination.log_file.with_name(destination.log_file.name + ".idx")),
        filtered=filtered,
        filters=tuple(text.encode() for text in destination.filters),
    )


def _appending(path: Path) -> IO[bytes]:
    """The file opened for appending, or a file in which every write fails and is counted: a full disk must not stop a rank."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab", buffering=0)
    except OSError:
        return Path("/dev/full").open("ab", buffering=0)


def _recording(path: Path) -> IO[bytes]:
    """A file of the recording, likewise. A link, which would lead to a file of the user's, is refused."""
    try:
        make_folder(path.parent)
        return os.fdopen(write_plain(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)
    except OSError:
        return Path("/dev/full").open("ab", buffering=0)


def _write_log(stream: _Stream, chunk: bytes) -> None:
    now_ns = time.time_ns()
    if now_ns - stream.indexed_ns >= _INDEX_INTERVAL_NS:
        stream.indexed_ns = now_ns
        _append(stream.index, b"%d %d\n" % (now_ns, stream.written_bytes))
    lost = [_append(file, chunk) for file in stream.files]
    stream.written_bytes += len(chunk) - lost[0]
    stream.lost_bytes += sum(lost)


def _filter(stream: _Stream, chunk: bytes, *, ended: bool = False) -> None:
    """Copy the lines that match. `ended`: what has begun is a line. Each byte is looked at a bounded number of times."""
    if stream.filtered is None:
        return
    copied = []
    for piece in chunk.splitlines(keepends=True):
        is_end = piece.endswith((b"\n", b"\r"))
        if stream.in_long_line:
            copied.append(piece)
            stream.in_long_line = not is_end
            continue
        stream.unfiltered += piece
        if len(stream.unfiltered) > LONGEST_FILTERED_BYTES:
            stream.long_lines += 1
            stream.in_long_line = not is_end
            copied.append(_taken(stream.unfiltered))
        elif is_end and _matches(line := _taken(stream.unfiltered), stream.filters):
            copied.append(line)
    if ended and stream.unfiltered and _matches(line := _taken(stream.unfiltered), stream.filters):
        copied.append(line)
    stream.lost_bytes += _append(stream.filtered, b"".join(copied))


def _taken(text: bytearray) -> bytes:
    """The text, which is empty from now on."""
    taken = bytes(text)
    text.clear()
    return taken


def _matches(line: bytes, filters: tuple[bytes, ...]) -> bool:
    return any(text in line for text in filters)


def _append(file: IO[bytes], data: bytes) -> int:
    """Append the data; returns how many bytes could not be written."""
    try:
        return len(data) - (file.write(data) or 0)
    except OSError:
        return len(data)


def _remember(stream: _Stream, chunk: bytes) -> None:
    stream.tail.append(chunk)
    stream.tail_bytes += len(chunk)
    while stream.tail_bytes > TAIL_BYTES and len(stream.tail) > 1:
        stream.tail_bytes -= len(stream.tail.popleft())


def _same_file(one: int, other: int) -> bool:
    """Whether two descriptors lead to the same terminal, pipe or file."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # Another process made the terminal non-blocking, and the setting holds for this descriptor too.
            select.select([], [fd], [])
