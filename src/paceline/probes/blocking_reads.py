"""Reads that may never return, made by a process that is given up then.

A file on a server that is gone (NFS, FUSE) and even /proc/PID/cmdline may keep whoever reads them in uninterruptible sleep, for as long as
the file system likes; no signal ends that. Here a small child process reads, one file after the other. If a file does not come in time,
the child is killed, left where it sleeps, and another one makes the next read. Only regular files are opened, those of /proc among them:
looking at a pipe or a device may change it.

The child is an isolated interpreter and no fork: the caller may have threads. It ends when the caller ends.
"""

import errno
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from paceline.probes.remote_memory import open_regular, place_below

MOST_BYTES = 1 << 24
_PATH_BYTES = 4096
_PIECE = 1 << 20
# What is asked, the process whose root it is (0: the child's own), the most bytes, the length of the path that follows.
_QUESTION = struct.Struct("<BIQH")
_READ, _STAT = 0, 1
# The error or 0, and the length of what follows: the text of the error, or what was asked for.
_ANSWER = struct.Struct("<iQ")
_READY = b"\1"
# It takes a tenth of a second.
_START_SECONDS = 10.0
_END_SECONDS = 1.0
_CODE = "import sys; sys.path.append(sys.argv[1]); from paceline.probes.blocking_reads import serve; serve()"
_given_up: list[subprocess.Popen[bytes]] = []


class TimedOut(TimeoutError):
    """The file did not come in time. Whether it is there is not known."""


class BoundedReader:
    """Reads files, each within its time. It may be used by several threads; none of them waits for another's read."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._closed = False

    def __enter__(self) -> "BoundedReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: str, most_bytes: int, seconds: float) -> bytes:
        """The content of a regular file, at most `most_bytes` of it. `path` is absolute.

        A child that has to be started takes a tenth of a second, which is not of these seconds.

        Raises:  TimedOut; OSError: that of the read, or it is no regular file; ValueError: more than MOST_BYTES, or the reader is closed
        """
        return self._ask(_READ, 0, path, most_bytes, seconds)

    def read_in_root(self, pid: int, path: str, most_bytes: int, seconds: float) -> bytes:
        """The same of a file as a process sees it: no link leads out of its root.

        Raises:  as `read`; OSError as well: the process is gone or is another user's, or this kernel is older than 5.6
        """
        return self._ask(_READ, pid, path, most_bytes, seconds)

    def stat(self, path: str, seconds: float) -> os.stat_result:
        """os.stat of any path, with times in whole seconds.

        Raises:  TimedOut; OSError: that of the call; ValueError: the reader is closed
        """
        return _stat_result(self._ask(_STAT, 0, path, _PATH_BYTES, seconds))

    def stat_in_root(self, pid: int, path: str, seconds: float) -> os.stat_result:
        """The same of a path as a process sees it.

        Raises:  as `stat`, and as `read_in_root`
        """
        return _stat_result(self._ask(_STAT, pid, path, _PATH_BYTES, seconds))

    def close(self) -> None:
        """End the children. One that sleeps uninterruptibly ends when its file system lets it go; a later reader takes it away then."""
        self._closed = True
        while (child := self._take()) is not None:
            child.give_up()
        _take_away(_END_SECONDS)

    def _ask(self, what: int, pid: int, path: str, most_bytes: int, seconds: float) -> bytes:
        name = os.fsencode(path)
        if self._closed:
            raise ValueError("the reader is closed")
        if not 0 <= most_bytes <= MOST_BYTES or b"\0" in name:
            raise ValueError(f"{most_bytes} bytes of {path!r} are not read")
        if len(name) >= _PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        try:
            code, content = self._answer(_QUESTION.pack(what, pid, most_bytes, len(name)) + name, seconds)
        except TimeoutError:
            raise TimedOut(errno.ETIMEDOUT, f"not read within {seconds:g} s", path) from None
        except _Ended:
            raise OSError(errno.EIO, "the process that reads it was ended", path) from None
        if code:
            raise OSError(code, content.decode(errors="replace"), path)
        return content

    def _answer(self, question: bytes, seconds: float) -> tuple[int, bytes]:
        child, began = self._take() or _Child(), time.monotonic()
        try:
            return self._answer_of(child, question, seconds)
        except _Ended:
            # Somebody has killed it, maybe while it had nothing to do. Another one has what is left of the time.
            left = seconds - (time.monotonic() - began)
            return self._answer_of(_Child(), question, max(0.0, left))

    def _answer_of(self, child: "_Child", question: bytes, seconds: float) -> tuple[int, bytes]:
        try:
            answer = child.ask(question, time.monotonic() + seconds)
        except BaseException:
            child.give_up()
            raise
        self._idle.append(child)
        if self._closed:
            # By another thread, meanwhile.
            self.close()
        return answer

    def _take(self) -> "_Child | None":
        try:
            return self._idle.pop()
        except IndexError:
            return None


class _Ended(Exception):
    """The child is gone."""


class _Child:
    def __init__(self) -> None:
        """Start it.

        Raises:  OSError: it does not start
        """
        _take_away(0.0)
        self.connection, theirs = socket.socketpair()
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _CODE, str(Path(__file__).parents[2])],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    # Ctrl-C in the terminal is the caller's.
                    start_new_session=True,
                )
        except OSError:
            self.connection.close()
            raise
        try:
            _exactly(self.connection, len(_READY), time.monotonic() + _START_SECONDS)
        except (_Ended, TimeoutError):
            self.give_up()
            raise OSError(errno.EIO, "the process that reads does not start") from None
        except BaseException:
            self.give_up()
            raise

    def ask(self, question: bytes, ends_at: float) -> tuple[int, bytes]:
        """The error or 0, and the text of the error or what was asked for.

        Raises:  TimeoutError; _Ended
        """
        try:
            _may_wait(self.connection, ends_at)
            self.connection.sendall(question, socket.MSG_NOSIGNAL)
        except ConnectionError:
            raise _Ended from None
        code, length = _ANSWER.unpack(_exactly(self.connection, _ANSWER.size, ends_at))
        return code, _exactly(self.connection, length, ends_at)

    def give_up(self) -> None:
        """Kill it, and wait for nothing."""
        self.connection.close()
        self.process.kill()
        _given_up.append(self.process)


def _take_away(seconds: float) -> None:
    """Forget the children that were given up and have ended by now, or do so within this time."""
    ends_at = time.monotonic() + seconds
    remain = []
    # No lock: other threads give up children meanwhile.
    while _given_up:
        try:
            process = _given_up.pop()
        except IndexError:
            break
        try:
            process.wait(max(0.0, ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            remain.append(process)
    _given_up.extend(remain)


def _exactly(connection: socket.socket, count: int, ends_at: float | None = None) -> bytes:
    """So many bytes.

    Raises:  TimeoutError; _Ended: the other end is gone
    """
    found = bytearray()
    while len(found) < count:
        if ends_at is not None:
            _may_wait(connection, ends_at)
        try:
            piece = connection.recv(min(_PIECE, count - len(found)))
        except ConnectionError:
            raise _Ended from None
        if not piece:
            raise _Ended
        found += piece
    return bytes(found)


def _may_wait(connection: socket.socket, ends_at: float) -> None:
    # With 0 it would not wait at all, and say so by another error.
    connection.settimeout(max(1e-6, ends_at - time.monotonic()))


def _stat_result(text: bytes) -> os.stat_result:
    return os.stat_result([int(word) for word in text.split()])


# -------------------------------------------------------------------------------------------------------------- the child


def serve() -> None:
    """The child: one answer to each question that comes through its standard input, until there is nobody who asks."""
    with socket.socket(fileno=0) as connection:
        try:
            connection.sendall(_READY)
            while True:
                what, pid, most_bytes, length = _QUESTION.unpack(_exactly(connection, _QUESTION.size))
                path = os.fsdecode(_exactly(connection, length))
                try:
                    code, content = 0, _found(what, pid, path, most_bytes)
                except OSError as error:
                    code, content = error.errno or errno.EIO, (error.strerror or str(error)).encode(errors="replace")
                connection.sendall(_ANSWER.pack(code, len(content)) + content)
        except (_Ended, ConnectionError):
            return


def _found(what: int, pid: int, path: str, most_bytes: int) -> bytes:
    place = _place_in_root(pid, path) if pid else os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if what == _STAT:
            return " ".join(map(str, os.fstat(place))).encode()
        descriptor = open_regular(place, path)
    finally:
        os.close(place)
    with open(descriptor, "rb", buffering=0) as file:
        found = bytearray()
        while piece := file.read(min(_PIECE, most_bytes - len(found))):
            found += piece
        return bytes(found)


def _place_in_root(pid: int, path: str) -> int:
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return place_below(root, path)
    finally:
        os.close(root)
