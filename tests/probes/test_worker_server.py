"""torch's worker server as it answers, and as it does not."""

import fcntl
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from paceline.probes.worker_server import GateClosed, Questions, parse_response

PONG = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1, max=30\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\npong"


@contextmanager
def server(path, answer):
    """Takes connections one after the other and hands each to `answer` with what was asked."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    path.with_suffix(".gate").touch()

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

    with server(tmp_path / "a.sock", answer) as path:
        assert Questions().ask(path, "ping", 5) == b"pong"
    assert asked[0].startswith(b"POST /handler/ping HTTP/1.1\r\n")


def test_nobody_there_is_no_answer(tmp_path):
    (tmp_path / "nothing.gate").touch()
    assert Questions().ask(tmp_path / "nothing.sock", "ping", 1) is None


def test_a_stopped_process_takes_the_connection_and_is_left_in_time(tmp_path):
    (tmp_path / "s.gate").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.sock"))
        listener.listen()
        assert Questions().ask(tmp_path / "s.sock", "ping", 0.05) is None


def test_a_rank_with_an_open_question_is_not_asked_it_again(tmp_path):
    held = []
    with server(tmp_path / "a.sock", lambda connection, request: held.append(connection)) as path:
        questions = Questions()
        assert questions.ask(path, "dump_traceback", 0.05) is None
        assert questions.ask(path, "dump_traceback", 0.05) is None
        assert len(held) == 1
        held[0].sendall(PONG)
        held[0].close()
        until(lambda: questions.ask(path, "dump_traceback", 0.05) is None and len(held) == 2)
        held[1].close()


def test_an_answer_that_comes_is_given_back_and_may_be_asked_for_again(tmp_path):
    with server(tmp_path / "a.sock", in_pieces) as path:
        questions = Questions()
        assert [questions.ask(path, "ping", 5), questions.ask(path, "ping", 5)] == [b"pong", b"pong"]


def test_a_rank_that_closed_its_gate_is_asked_nothing(tmp_path):
    asked = []
    with server(tmp_path / "a.sock", lambda connection, request: asked.append(request)) as path:
        with path.with_suffix(".gate").open() as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            with pytest.raises(GateClosed, match="it is leaving"):
                Questions().ask(path, "ping", 5)
        path.with_suffix(".gate").unlink()
        with pytest.raises(GateClosed, match="no gate"):
            Questions().ask(path, "ping", 5)
    assert asked == []


def test_the_gate_stays_open_until_the_answer_is_there_however_long_ago_the_asker_gave_up(tmp_path):
    held = []
    with server(tmp_path / "a.sock", lambda connection, request: held.append(connection)) as path:
        assert Questions().ask(path, "dump_traceback", 0.05) is None
        assert not gate_is_free(path)
        in_pieces(held[0], b"")
        until(lambda: gate_is_free(path))


def gate_is_free(path) -> bool:
    with path.with_suffix(".gate").open() as gate:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def until(condition) -> None:
    ends_at = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.005)
