"""Asks torch's worker server inside a rank. It is C++ on a UNIX socket: `ping` and the flight recorder answer without the GIL."""

import select
import socket
import threading
import time
from pathlib import Path

_MOST_BYTES = 1 << 24
_HEAD_END = b"\r\n\r\n"
_RECORDERS = ("fr_trace_json", "dump_nccl_trace_json")


def ask(socket_path: Path, handler: str, timeout_seconds: float, query: str = "") -> bytes | None:
    """The body that the server answers, within `timeout_seconds` in all; None where it does not, or not with 200.

    A process that is stopped takes the connection and never answers; one without a server refuses it.
    """
    ends_at = time.monotonic() + timeout_seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            _send(connection, socket_path, f"{handler}?{query}" if query else handler, timeout_seconds)
            return _receive(connection, ends_at)
    except OSError:
        return None


def trace(socket_path: Path, timeout_seconds: float) -> bytes | None:
    """The flight recorder as JSON, for diagnosis.traces; works while somebody holds the GIL. Older ones have that of NCCL alone."""
    ends_at = time.monotonic() + timeout_seconds
    for handler in _RECORDERS:
        left = ends_at - time.monotonic()
        if left > 0 and (answer := ask(socket_path, handler, left)) is not None:
            return answer
    return None


class Tracebacks:
    """Asks for Python tracebacks, of each rank one at a time.

    A traceback needs the GIL, and the server's thread that waits for it is not given back when the asker leaves: some thirty of
    them, and the server answers nothing any more. So a question that stays open is kept, and counts as no answer until it has one.
    """

    def __init__(self) -> None:
        self._open: dict[Path, socket.socket] = {}
        self._turn = threading.Lock()

    def ask(self, socket_path: Path, timeout_seconds: float) -> bytes | None:
        """The text of faulthandler; None where none comes in time, or an earlier question is still open."""
        with self._turn:
            self._close_answered()
            if socket_path in self._open:
                return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            ends_at = time.monotonic() + timeout_seconds
            _send(connection, socket_path, "dump_traceback", timeout_seconds)
            answer = _receive(connection, ends_at)
        except TimeoutError:
            with self._turn:
                if self._open.setdefault(socket_path, connection) is not connection:
                    connection.close()
            return None
        except OSError:
            answer = None
        connection.close()
        return answer

    def close(self) -> None:
        """Give up every question that is open."""
        with self._turn:
            for connection in self._open.values():
                connection.close()
            self._open.clear()

    def _close_answered(self) -> None:
        # Also those whose process has ended: the end of a stream can be read.
        readable, _, _ = select.select(list(self._open.values()), [], [], 0)
        for path in [path for path, connection in self._open.items() if connection in readable]:
            self._open.pop(path).close()


def parse_response(received: bytes) -> bytes | None:
    """The body of a whole HTTP response; None while some is missing, and for any status but 200."""
    head, end, body = received.partition(_HEAD_END)
    if not end or head.split(b" ", 2)[1:2] != [b"200"]:
        return None
    length = _content_length(head)
    if length is None or len(body) < length:
        return None
    return body[:length]


def _send(connection: socket.socket, socket_path: Path, target: str, timeout_seconds: float) -> None:
    connection.settimeout(timeout_seconds)
    connection.connect(str(socket_path))
    request = f"POST /handler/{target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    connection.sendall(request.encode())


def _receive(connection: socket.socket, ends_at: float) -> bytes | None:
    """The whole answer's body.

    Raises:  TimeoutError: it is not there at `ends_at`, by time.monotonic()
    """
    parts: list[bytes] = []
    wanted: int | None = None
    size = 0
    while size < _MOST_BYTES:
        left = ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
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
