"""Pulses from real rings: when a rank last moved, and when its flight recorder is asked."""

import json
import os
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from paceline.launch.rings import RingCollector
from paceline.launch.watch import HostWatch
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import OPERATIONS, Cell, Kind, RingWriter

SECOND = 1_000_000_000
T0 = 1_795_000_000 * SECOND


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Stands for torch's worker server: answers with the counters that it is told."""

    daemon_threads = True

    def __init__(self, path):
        self.asked, self.enqueued = 0, 5
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.asked += 1
                status = {"last_enqueued_collective": str(outer.enqueued), "last_completed_collective": "4"}
                body = json.dumps({"version": "2.10", "pg_status": {"0": status}, "entries": []}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        super().__init__(str(path), Handler)

    def get_request(self):
        connection, _ = super().get_request()
        return connection, ("", 0)


class Rank:
    """A rank's ring with this process's pid, and a watch over it."""

    def __init__(self, tmp_path):
        self.ring = RingWriter(tmp_path / f"0-{os.getpid()}.ring", capacity=64)
        for cell, value in {Cell.PID: os.getpid(), Cell.RANK: 3, Cell.START_NS: T0, Cell.PHASE_SINCE_NS: T0}.items():
            self.ring.cells[cell] = value
        self.collector = RingCollector(tmp_path, RunDirectory(tmp_path / "run"), "h", 0)
        self.watch = HostWatch("h", 0, tmp_path)
        self.server = Server(tmp_path / f"{os.getpid()}.sock")
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def step(self, index, at_seconds, seconds=0.1):
        self.ring.cells[Cell.STEP_COUNT] = index
        self.ring.cells[Cell.FIRST_STEP_NS] = T0 + int((at_seconds - (index - 1) * seconds) * SECOND)
        self.ring.cells[Cell.LAST_STEP_NS] = T0 + int(at_seconds * SECOND)
        self.ring.cells[Cell.STEP_TOTAL_NS] = int(index * seconds * SECOND)
        self.ring.write(Kind.STEP, 0, index, T0 + int(at_seconds * SECOND))

    def pulse(self, at_seconds):
        self.collector.look()
        pulses, _ = self.watch.look(self.collector, T0 + int(at_seconds * SECOND))
        return pulses[0]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.watch.close()
        self.collector.close()


@pytest.fixture
def rank(tmp_path):
    rank = Rank(tmp_path)
    yield rank
    rank.close()


def test_a_rank_that_steps_moved_at_its_last_step(rank):
    rank.step(5, 9.5)
    found = rank.pulse(10)
    assert (found.rank, found.step_count) == (3, 5)
    assert found.moved_ns == T0 + int(9.5 * SECOND)
    rank.step(8, 10.8)
    found = rank.pulse(11)
    assert found.moved_ns == T0 + int(10.8 * SECOND)
    assert found.step_seconds == pytest.approx(0.1)


def test_the_first_step_of_a_rank_does_not_count_for_its_pace(rank):
    rank.step(5, 9.5)
    rank.ring.cells[Cell.STEP_TOTAL_NS] = int(20.4 * SECOND)
    assert rank.pulse(10).step_seconds == pytest.approx(0.1)


def test_a_rank_that_stands_keeps_the_moment_at_which_it_moved_last(rank):
    rank.step(5, 9.5)
    assert [rank.pulse(at).moved_ns for at in (10, 11, 20)] == [T0 + int(9.5 * SECOND)] * 3


def test_a_flight_recorder_is_asked_only_of_a_rank_that_stands(rank):
    rank.step(5, 9.5)
    assert [rank.pulse(at).groups for at in (10, 10.5, 11)] == [None] * 3
    assert rank.server.asked == 0
    found = rank.pulse(12)
    assert [(group.enqueued, group.completed) for group in found.groups] == [(5, 4)]
    assert rank.pulse(12.5).groups == found.groups
    assert rank.server.asked == 1


def test_a_long_usual_step_is_no_reason_to_ask(rank):
    rank.step(5, 9.5, seconds=10)
    rank.pulse(10)
    rank.pulse(25)
    assert rank.server.asked == 0
    rank.pulse(31)
    assert rank.server.asked == 1


def test_a_flight_recorder_that_goes_on_is_movement_too(rank):
    rank.step(5, 9.5)
    rank.pulse(10)
    rank.pulse(13)
    rank.server.enqueued = 6
    assert rank.pulse(15).moved_ns == T0 + 15 * SECOND


def test_counters_from_before_a_movement_are_not_shown_after_it(rank):
    rank.step(5, 9.5)
    rank.pulse(10)
    assert rank.pulse(13).groups
    rank.step(6, 13.5)
    assert rank.pulse(14).groups is None


def test_a_send_after_a_collective_leaves_the_count_of_collectives_known(rank):
    send, reduce = OPERATIONS.index("send"), OPERATIONS.index("allreduce")
    for at, (code, index) in enumerate(((reduce, 1), (reduce, 2), (send, 0))):
        rank.ring.write(Kind.CALL, code, index, T0 + at, 1, 0, 0, 8, at)
    found = rank.pulse(1)
    assert list(found.calls.values()) == [2]
    assert found.last_call.operation == "send"
