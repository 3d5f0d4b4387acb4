"""torch's worker server as it answers, and as it does not."""

import fcntl
import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from paceline.backend_names import FINISHED_ENTRIES
from paceline.probes import worker_server
from paceline.probes.worker_server import GateClosed, Questions, parse_response, traces

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


# ------------------------------------------------------------------------------------------------------- flight recorders

OF_GLOO, OF_NCCL2 = "fr_trace_json", "fr_trace_json?backend=nccl2"
COUNTERS, ENTRIES = "dump_nccl_trace_json?includecollectives=false", "dump_nccl_trace_json"
PICKLE = "dump_nccl_trace_pickle?includestacktraces=false"
HAS_CALLS = b'{"pg_status": {"0": {}}}'


class Recorders:
    """A worker server that answers some questions, leaves some open, and has no others; notes what it was asked."""

    def __init__(self, names, answers, silent=()):
        self.asked, self.answers, self.silent, self.open = [], {"": json.dumps(names).encode(), **answers}, silent, []

    def __call__(self, connection, request):
        handler = request.split(b" ", 2)[1].decode().removeprefix("/handler/")
        self.asked.append(handler)
        if handler in self.silent:
            self.open.append(connection)
            return
        body = self.answers.get(handler)
        with connection:
            connection.sendall(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
                if body is None
                else b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )


@pytest.mark.parametrize(
    ("names", "answers", "backends", "found", "asked"),
    [
        pytest.param(["fr_trace_json"], {OF_GLOO: b"g"}, ["gloo"], [("gloo", b"g")], [OF_GLOO], id="a torch for CPUs"),
        pytest.param(
            ["fr_trace_json", "dump_nccl_trace_json"],
            {OF_GLOO: b"g", COUNTERS: b'{"pg_status": {}}', ENTRIES: b"never asked"},
            ["gloo"],
            [("gloo", b"g")],
            [OF_GLOO, COUNTERS],
            id="gloo on a torch with NCCL",
        ),
        pytest.param(
            ["fr_trace_json", "dump_nccl_trace_json"],
            {OF_GLOO: b"{}", COUNTERS: HAS_CALLS, ENTRIES: b"n"},
            ["cpu:gloo,cuda:nccl"],
            [("gloo", b"{}"), ("nccl", b"n")],
            [OF_GLOO, COUNTERS, ENTRIES],
            id="both in one group",
        ),
        pytest.param(
            ["fr_trace_json", "dump_nccl_trace_json", "fr_dump_file"],
            {OF_GLOO: b"{}", OF_NCCL2: b"n2", COUNTERS: b'{"pg_status": {}}'},
            ["nccl"],
            [("gloo", b"{}"), ("nccl2", b"n2")],
            [OF_GLOO, OF_NCCL2, COUNTERS],
            id="torch 2.15",
        ),
        pytest.param(
            ["fr_trace_json", "dump_nccl_trace_json", "fr_dump_file"],
            {OF_GLOO: b"g", COUNTERS: b'{"pg_status": {}}'},
            ["gloo"],
            [("gloo", b"g")],
            [OF_GLOO, COUNTERS],
            id="gloo on torch 2.15",
        ),
        pytest.param(
            ["dump_nccl_trace_json"],
            {COUNTERS: HAS_CALLS, ENTRIES: b"n"},
            ["nccl"],
            [("nccl", b"n")],
            [COUNTERS, ENTRIES],
            id="torch 2.6",
        ),
        pytest.param(
            ["ping", "dump_nccl_trace_pickle"], {PICKLE: b"\x80p"}, [], [("nccl", b"\x80p")], [PICKLE], id="torch 2.4"
        ),
    ],
)
def test_each_torch_is_asked_for_the_recorders_that_it_has(tmp_path, names, answers, backends, found, asked):
    recorders = Recorders(names, answers)
    with server(tmp_path / "a.sock", recorders) as path:
        questions = Questions()
        for _ in range(2):
            assert list(traces(path, 5, backends=backends, questions=questions).answers) == found
    # What there is to ask is asked once for each process.
    assert recorders.asked == ["", *asked, *asked]


OF_ALL = f"{FINISHED_ENTRIES}?backend=nccl2"
OURS = ["fr_trace_json", "dump_nccl_trace_json", "fr_dump_file", FINISHED_ENTRIES]


@pytest.mark.parametrize(
    ("names", "answers", "finished", "found", "asked"),
    [
        (OURS, {OF_NCCL2: b"n2", OF_ALL: b"all"}, True, b"all", [OF_NCCL2, OF_ALL]),
        (OURS, {OF_NCCL2: b"n2", OF_ALL: b"all"}, False, b"n2", [OF_NCCL2]),
        (OURS[:3], {OF_NCCL2: b"n2", OF_ALL: b"all"}, True, b"n2", [OF_NCCL2]),
        # Nobody gives up the GIL: what is known without it still counts.
        (OURS, {OF_NCCL2: b"n2"}, True, b"n2", [OF_NCCL2, OF_ALL]),
        # Its server does not answer at all.
        (OURS, {}, True, None, [OF_NCCL2]),
    ],
)
def test_finished_entries_are_asked_for_only_where_they_are_wanted_and_a_question_without_the_gil_was_answered(
    tmp_path, names, answers, finished, found, asked
):
    recorders = Recorders(names, {OF_GLOO: b"{}", COUNTERS: b'{"pg_status": {}}', **answers})
    with server(tmp_path / "a.sock", recorders) as path:
        said = dict(traces(path, 5, backends=["nccl"], finished=finished, questions=Questions()).answers)
    assert said.get("nccl2") == found
    assert [handler for handler in recorders.asked if "nccl2" in handler] == asked


def test_a_server_that_does_not_list_its_questions_is_asked_the_known_ones(tmp_path):
    recorders = Recorders([], {OF_GLOO: b"g"})
    del recorders.answers[""]
    with server(tmp_path / "a.sock", recorders) as path:
        found = traces(path, 5, backends=["gloo"], questions=Questions())
    assert found.answers == (("gloo", b"g"),)


def test_an_answer_that_waits_for_the_device_holds_up_no_other_and_is_known_after_a_while(tmp_path, monkeypatch):
    recorders = Recorders(
        ["fr_trace_json", "dump_nccl_trace_json"], {OF_GLOO: b"{}", COUNTERS: HAS_CALLS}, silent=[ENTRIES]
    )
    monkeypatch.setattr(worker_server, "_ENTRIES_SECONDS", 0.1)
    with server(tmp_path / "a.sock", recorders) as path:
        questions = Questions()
        first = traces(path, 0.2, questions=questions)
        assert first.answers == (("gloo", b"{}"),)
        assert (first.driver_answers, first.are_whole) == (None, False)
        monkeypatch.setattr(worker_server, "_SILENT_SECONDS", 0.0)
        again = traces(path, 5, questions=questions)
        assert again.answers == first.answers and again.driver_answers is False
        assert recorders.asked.count(ENTRIES) == 1
        for connection in recorders.open:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            connection.close()
        until(lambda: questions.open_seconds(path, ENTRIES) == 0)
        recorders.silent, recorders.answers[ENTRIES] = (), b"n"
        assert traces(path, 5, questions=questions).driver_answers is True


def test_a_process_that_answers_nothing_is_no_silent_driver(tmp_path):
    """It is stopped, say: nothing is known of its device."""
    recorders = Recorders(
        ["fr_trace_json", "dump_nccl_trace_json"], {}, silent=["", OF_GLOO, COUNTERS, ENTRIES, PICKLE]
    )
    with server(tmp_path / "a.sock", recorders) as path:
        assert traces(path, 0.1, questions=Questions()) is None
        for connection in recorders.open:
            connection.close()
