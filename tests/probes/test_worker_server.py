"""torch's worker server as it answers, and as it does not."""

import socket
import threading
from contextlib import contextmanager

import pytest

from paceline.probes.worker_server import Tracebacks, ask, parse_response

PONG = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1, max=30\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\npong"


@contextmanager
def server(path, answer):
    """Takes connections one after the other and hands each to `answer` with what was asked."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            answer(connection, connection.recv(4096))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield path
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def in_pieces(connection, request):
    with connection:
        for piece in (PONG[:20], PONG[20:-2], PONG[-2:]):
            connection.sendall(piece)


@pytest.mark.parametrize(
    ("received", "body"),
    [
        (PONG, b"pong"),
        (PONG[:-1], None),
        (PONG.replace(b"200 OK", b"404 Not Found"), None),
        (b"", None),
        (b"HTTP/1.1 200 OK\r\n\r\n", None),
        (PONG + b"more", b"pong"),
    ],
)
def test_only_a_whole_answer_counts(received, body):
    assert parse_response(received) == body


def test_an_answer_in_pieces_is_put_together(tmp_path):
    asked = []

    def answer(connection, request):
        asked.append(request)
        in_pieces(connection, request)

    with server(tmp_path / "s", answer) as path:
        assert ask(path, "ping", 5, query="a=b") == b"pong"
    assert asked[0].startswith(b"POST /handler/ping?a=b HTTP/1.1\r\n")


def test_nobody_there_is_no_answer(tmp_path):
    assert ask(tmp_path / "nothing.sock", "ping", 0.1) is None


def test_a_stopped_process_takes_the_connection_and_is_left_in_time(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        assert ask(tmp_path / "s", "ping", 0.05) is None


def test_a_rank_with_an_open_question_is_asked_for_no_second_traceback(tmp_path):
    held = []
    with server(tmp_path / "s", lambda connection, request: held.append(connection)) as path:
        tracebacks = Tracebacks()
        assert tracebacks.ask(path, 0.05) is None
        assert tracebacks.ask(path, 0.05) is None
        assert len(held) == 1
        held[0].sendall(PONG)
        held[0].close()
        assert tracebacks.ask(path, 0.05) is None
        assert len(held) == 2
        tracebacks.close()
        held[1].close()


def test_a_traceback_that_comes_is_given_back_and_may_be_asked_for_again(tmp_path):
    with server(tmp_path / "s", in_pieces) as path:
        tracebacks = Tracebacks()
        assert [tracebacks.ask(path, 5), tracebacks.ask(path, 5)] == [b"pong", b"pong"]
