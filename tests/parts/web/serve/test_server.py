"""The socket: bytes in, bytes out, and what is not HTTP."""

import http.client
import os
import socket
import stat
import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest
from web_recordings import SECRET, TOKEN

from paceline.listening import listening, listening_at
from paceline.parts.web.serve.exchange import HttpResponse
from paceline.parts.web.serve.server import MOST_BODY_BYTES, MOST_CONNECTIONS, WebServer

PROTECTS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@contextmanager
def served(answer, listener=None, **options):
    listener = listener or listening("127.0.0.1", 0)
    server = WebServer(listener, answer, **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def said(address, data):
    """Everything that comes back before the connection ends."""
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def test_a_page_comes_with_what_protects_it(app):
    with served(app.answer) as (host, port):
        connection = http.client.HTTPConnection(host, port, timeout=10)
        for _ in range(2):
            connection.request("GET", "/api/run/r-000001/since", headers={"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            assert answer.status == 200 and SECRET.encode() in answer.read()
            assert {name: answer.getheader(name) for name in PROTECTS} == PROTECTS
        connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/run/r-000001/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + 20 * b"0" + b"99999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % at for at in range(200)) + b"\r\n",
        b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ],
    ids=[
        "no host",
        "no token",
        "large body",
        "a length behind zeros",
        "negative length",
        "chunked",
        "another URL",
        "another HTTP",
        "TLS",
        "long",
        "many headers",
        "two at once",
    ],
)
def test_a_stranger_is_refused(app, data):
    with served(app.answer) as address:
        answer = said(address, data)
    assert SECRET.encode() not in answer and b"r-000001" not in answer
    for line in answer.split(b"\r\n"):
        if line.startswith(b"HTTP/"):
            assert 400 <= int(line.split()[1]) <= 505


def test_a_body_of_the_limit_is_taken():
    bodies = []

    def answer(request):
        bodies.append(len(request.body))
        return HttpResponse(200, b"ok")

    with served(answer) as address:
        said(
            address,
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % MOST_BODY_BYTES + bytes(MOST_BODY_BYTES),
        )
        said(address, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nshort")
    assert bodies == [MOST_BODY_BYTES]


def test_a_body_above_the_limit_is_not_taken(app):
    over = MOST_BODY_BYTES + 1
    bodies = []
    with served(lambda request: bodies.append(request) or HttpResponse(200, b"ok")) as address:
        answer = said(address, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % over)
    assert answer.startswith(b"HTTP/1.1 413 ") and not bodies


def test_who_says_nothing_is_sent_away(app):
    with served(app.answer, socket_seconds=0.2) as address, socket.create_connection(address, timeout=10) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHos")
        assert silent.recv(100) == b""


def test_a_crowd_that_does_not_read_its_answers_keeps_nobody_away():
    def answer(request):
        return HttpResponse(200, b"x" * (64 << 20) if request.path == "/large" else b"here")

    with served(answer) as address, ExitStack() as crowd:
        for _ in range(200):
            one = crowd.enter_context(socket.create_connection(address, timeout=10))
            with suppress(OSError):
                one.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert said(address, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").endswith(b"here")


def test_a_crowd_that_says_nothing_keeps_nobody_away(app):
    with served(app.answer) as address, ExitStack() as crowd:
        for _ in range(MOST_CONNECTIONS + 8):
            crowd.enter_context(socket.create_connection(address, timeout=10))
        answer = said(address, b"GET /live.css HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")


def test_an_answer_that_breaks_ends_its_connection_alone(capfd):
    def answer(request):
        if request.target == "/broken":
            raise AssertionError("broken")
        return HttpResponse(200, b"whole")

    with served(answer) as address:
        assert said(address, b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n") == b""
        assert said(address, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").endswith(b"whole")
    assert capfd.readouterr() == ("", "")


def test_a_unix_socket_is_its_users_alone_and_takes_the_place_of_a_dead_one(app, tmp_path):
    path = tmp_path / "web.sock"
    listening_at(path).close()
    with served(app.answer, listening_at(path)):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(path))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        with pytest.raises(OSError):
            listening_at(path)


def test_a_file_is_not_replaced_by_a_socket(tmp_path):
    (tmp_path / "web.sock").write_text("mine")
    with pytest.raises(OSError):
        listening_at(tmp_path / "web.sock")
    assert (tmp_path / "web.sock").read_text() == "mine"
