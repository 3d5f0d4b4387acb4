"""Asks torch's worker server inside a rank, through the rank's gate. It is C++ on a UNIX socket; a traceback alone needs the GIL."""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

_MOST_BYTES = 1 << 24
_HEAD_END = b"\r\n\r\n"
_RECORDERS = ("fr_trace_json", "dump_nccl_trace_json")


class GateClosed(Exception):
    """The rank is leaving, or has no gate, so it gets no request."""


class Questions:
    """Sends requests to ranks, one request of a kind at a time for each rank.

    Some answers need the GIL, and the server's thread that waits for it is not released when the client leaves: after some thirty of
    them the server answers nothing any more. So a request without an answer in time stays open, and with it the
    gate (see worker/gate.py), until the answer arrives or the rank is gone; until then the same request has no answer.
    """

    def __init__(self) -> None:
        self._open: set[tuple[Path, str]] = set()
        self._turn = threading.Lock()

    def ask(self, socket_path: Path, handler: str, timeout_seconds: float) -> bytes | None:
        """The body of the server's answer within `timeout_seconds`; None if it does not answer, or not with 200.

        A stopped process accepts the connection and never answers; a process without a server refuses it.

        Raises:  GateClosed: the rank is leaving
        """
        question = (socket_path, handler)
        with self._turn:
            if question in self._open:
                return None
            self._open.add(question)
        answer: Future[bytes | None] = Future()
        # A daemon thread, because it stays as long as the request is open.
        threading.Thread(
            target=self._carry_out, args=(question, timeout_seconds, answer), daemon=True, name="paceline-ask"
        ).start()
        try:
            return answer.result(timeout_seconds)
        except TimeoutError:
            return None

    def _carry_out(self, question: tuple[Path, str], timeout_seconds: float, answer: "Future[bytes | None]") -> None:
        socket_path, handler = question
        try:
            with _gate_held(socket_path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                _send(connection, socket_path, handler, timeout_seconds)
                # From here on the server works, and the gate stays open until it is done.
                connection.settimeout(None)
                answered = _receive(connection)
        except GateClosed as closed:
            self._settle(question)
            answer.set_exception(closed)
        except OSError:
            self._settle(question)
            answer.set_result(None)
        else:
            self._settle(question)
            answer.set_result(answered)

    def _settle(self, question: tuple[Path, str]) -> None:
        with self._turn:
            self._open.discard(question)


_QUESTIONS = Questions()
"""One for the whole life of this process: a question that a rank left open must be known at the next one."""


def ask(socket_path: Path, handler: str, timeout_seconds: float) -> bytes | None:
    """As `Questions.ask`, for this process's single set of requests.

    Raises:  GateClosed: the rank is leaving
    """
    return _QUESTIONS.ask(socket_path, handler, timeout_seconds)


def trace(socket_path: Path, timeout_seconds: float) -> bytes | None:
    """The flight recorder as JSON, for diagnosis.flight_recorder; works while a thread holds the GIL. Older ones have that of NCCL alone.

    Raises:  GateClosed: the rank is leaving
    """
    ends_at = time.monotonic() + timeout_seconds
    for handler in _RECORDERS:
        left = ends_at - time.monotonic()
        if left > 0 and (answer := ask(socket_path, handler, left)) is not None:
            return answer
    return None


def parse_response(received: bytes) -> bytes | None:
    """The body of a complete HTTP response; None if it is incomplete or its status is not 200."""
    head, end, body = received.partition(_HEAD_END)
    if not end or head.split(b" ", 2)[1:2] != [b"200"]:
        return None
    length = _content_length(head)
    if length is None or len(body) < length:
        return None
    return body[:length]


@contextmanager
def _gate_held(socket_path: Path) -> Iterator[None]:
    """The rank's gate, held open.

    Raises:  GateClosed: it is closed for good, or not there
    """
    try:
        gate = os.open(socket_path.with_suffix(".gate"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise GateClosed(f"no gate: {error.strerror}") from None
    try:
        try:
            fcntl.flock(gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GateClosed("it is leaving") from None
        yield
    finally:
        os.close(gate)


def _send(connection: socket.socket, socket_path: Path, handler: str, timeout_seconds: float) -> None:
    connection.settimeout(timeout_seconds)
    connection.connect(str(socket_path))
    request = f"POST /handler/{handler} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    connection.sendall(request.encode())


def _receive(connection: socket.socket) -> bytes | None:
    """The body of the complete answer, or None if the connection ends before."""
    parts: list[bytes] = []
    wanted: int | None = None
    size = 0
    while size < _MOST_BYTES:
        part = connection.recv(1 << 18)
        parts.append(part)
        size += len(part)
        if wanted is None:
            received = b"".join(parts)
            head, end, _ = received.partition(_HEAD_END)
            length = _content_length(head) if end else None
            wanted = None if length is None else len(head) + len(_HEAD_END) + length
        if not part or (wanted is not None and size >= wanted):
            break
    return parse_response(b"".join(parts))


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None
