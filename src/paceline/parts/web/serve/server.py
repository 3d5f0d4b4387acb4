"""The socket: HTTP requests become values, and answers become bytes."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from paceline import __version__
from paceline.parts.web.serve.access import SECURITY_HEADERS
from paceline.parts.web.serve.exchange import HttpRequest, HttpResponse, refused

MOST_CONNECTIONS = 32
SOCKET_SECONDS = 15.0
MOST_BODY_BYTES = 64 << 10
_MOST_DIGITS = 20
Answer = Callable[[HttpRequest], HttpResponse]


class WebServer(ThreadingHTTPServer):
    """Serves on a listening socket. In a crowd the connection goes that has waited longest without a request."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, answer: Answer, *, socket_seconds: float = SOCKET_SECONDS) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.answer, self.socket_seconds = answer, socket_seconds
        # Open connections, the oldest first, and whether each has a request that is being answered.
        self._open: dict[socket.socket, bool] = {}
        self._change = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        with self._change:
            waiting = next((other for other, is_busy in self._open.items() if not is_busy), None)
            is_full = len(self._open) >= MOST_CONNECTIONS
            if is_full and waiting is not None:
                # Its thread then reads the end of the connection.
                del self._open[waiting]
                with suppress(OSError):
                    waiting.shutdown(socket.SHUT_RDWR)
            if not is_full or waiting is not None:
                self._open[request] = False
        if request in self._open:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What such a thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._change:
                self._open.pop(request, None)

    def server_close(self) -> None:
        """End every connection, also those that wait for a further request."""
        super().server_close()
        with self._change:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def answering(self, connection: socket.socket, is_busy: bool) -> None:
        """Note whether a connection has a request that is being answered."""
        with self._change:
            if connection in self._open:
                # Whoever asks is no longer the one that waited longest.
                del self._open[connection]
                self._open[connection] = is_busy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke breaks nothing else."""


class _Handler(BaseHTTPRequestHandler):
    server: WebServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"paceline/{__version__}", ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.socket_seconds)
        if self.connection.family != socket.AF_UNIX:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        # http.server asks for do_GET, do_POST and so on. The application knows which methods there are.
        if name.startswith("do_"):
            return self._do
        raise AttributeError(name)

    def _do(self) -> None:
        headers = tuple((name, str(value)) for name, value in self.headers.items())
        request = HttpRequest(self.command, self.path, headers)
        length = request.header("content-length") or "0"
        if request.has("transfer-encoding") or not (length.isascii() and length.isdecimal()):
            self._refuse(HTTPStatus.BAD_REQUEST, "the length of the body is not said")
        elif len(length) > _MOST_DIGITS or int(length) > MOST_BODY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MOST_BODY_BYTES} bytes")
        else:
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                self.close_connection = True
                return
            self.server.answering(self.connection, True)
            answer = self.server.answer(HttpRequest(self.command, self.path, headers, body))
            # Who does not read the answer waits like who does not ask, and goes first in a crowd.
            self.server.answering(self.connection, False)
            self._send(answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no HTTP is refused in one line, without repeating any of it."""
        self._refuse(HTTPStatus(code), HTTPStatus(code).phrase)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._send(refused(status, why))

    def _send(self, answer: HttpResponse) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.media_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in (*SECURITY_HEADERS, *answer.headers):
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body if self.command != "HEAD" else b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: an address could hold a secret."""
