"""Heartbeats from real rings: when a rank last moved, and when its flight recorder is asked."""

import json
import os
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from paceline.launch.agent.heartbeats import HeartbeatSampler
from paceline.launch.agent.ring_collector import RingCollector
from paceline.recording.exchanges import FIRST_CELL, ROW_CELLS, packed
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import OPERATIONS, Cell, RecordKind, RingWriter

SECOND = 1_000_000_000
T0 = 1_795_000_000 * SECOND


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Stands for torch's worker server: answers with the counters that it is told."""

    daemon_threads = True

    def __init__(self, path):
        self.asked, self.enqueued, self.entries = 0, 5, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer(json.dumps(["ping", "fr_trace_json", "dump_traceback"]).encode())

            def do_POST(self):
                outer.asked += 1
                status = {"last_enqueued_collective": str(outer.enqueued), "last_completed_collective": "4"}
                self.answer(
                    json.dumps({"version": "2.10", "pg_status": {"0": status}, "entries": outer.entries}).encode()
                )

            def answer(self, body):
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
        self.watch = HeartbeatSampler("h", 0, tmp_path)
        self.server = Server(tmp_path / f"{os.getpid()}.sock")
        (tmp_path / f"{os.getpid()}.gate").touch()
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def step(self, index, at_seconds, seconds=0.1):
        self.ring.cells[Cell.STEP_COUNT] = index
        self.ring.cells[Cell.FIRST_STEP_NS] = T0 + int((at_seconds - (index - 1) * seconds) * SECOND)
        self.ring.cells[Cell.LAST_STEP_NS] = T0 + int(at_seconds * SECOND)
        self.ring.cells[Cell.STEP_TOTAL_NS] = int(index * seconds * SECOND)
        self.ring.write(RecordKind.STEP, 0, index, T0 + int(at_seconds * SECOND))

    def exchange(self, row, seq, *, over, at_seconds, group=1, numel=100, operation="allreduce"):
        """As parts/comm/instruments/exchanges.py writes it."""
        cells, at = self.ring.cells, FIRST_CELL + row * ROW_CELLS
        code = OPERATIONS.index(operation)
        cells[at + 1], cells[at + 2], cells[at + 3] = seq, over, packed(code, 1, numel)
        cells[at] = group
        self.ring.write(RecordKind.EXCHANGE, code, seq, T0 + int(at_seconds * SECOND), group, numel, 1)

    def group(self, number, name, ranks):
        with self.ring.path.with_suffix(".texts").open("a") as texts:
            texts.write(json.dumps(["group", number, name, ranks, "paceline"]) + "\n")

    def heartbeat(self, at_seconds):
        self.collector.look()
        heartbeats, _ = self.watch.look(self.collector, T0 + int(at_seconds * SECOND))
        return heartbeats[0]

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
    found = rank.heartbeat(10)
    assert (found.rank, found.step_count) == (3, 5)
    assert found.moved_ns == T0 + int(9.5 * SECOND)
    rank.step(8, 10.8)
    found = rank.heartbeat(11)
    assert found.moved_ns == T0 + int(10.8 * SECOND)
    assert found.step_seconds == pytest.approx(0.1)


def test_the_first_step_of_a_rank_does_not_count_for_its_pace(rank):
    rank.step(5, 9.5)
    rank.ring.cells[Cell.STEP_TOTAL_NS] = int(20.4 * SECOND)
    assert rank.heartbeat(10).step_seconds == pytest.approx(0.1)


def test_a_rank_that_stands_keeps_the_moment_at_which_it_moved_last(rank):
    rank.step(5, 9.5)
    assert [rank.heartbeat(at).moved_ns for at in (10, 11, 20)] == [T0 + int(9.5 * SECOND)] * 3


def test_a_flight_recorder_is_asked_only_of_a_rank_that_stands(rank):
    rank.step(5, 9.5)
    assert [rank.heartbeat(at).groups for at in (10, 10.5, 11)] == [None] * 3
    assert rank.server.asked == 0
    found = rank.heartbeat(12)
    assert [(group.enqueued, group.completed) for group in found.groups] == [(5, 4)]
    assert rank.heartbeat(12.5).groups == found.groups
    assert rank.server.asked == 1


def test_the_flight_recorder_of_a_rank_that_exits_is_left_alone(rank):
    rank.step(5, 9.5)
    rank.ring.cells[Cell.LEAVING_NS] = T0
    assert [rank.heartbeat(at).groups for at in (10, 12, 30)] == [None] * 3
    assert rank.watch.traces(rank.collector) == {} and rank.server.asked == 0


def test_a_long_usual_step_is_no_reason_to_ask(rank):
    rank.step(5, 9.5, seconds=10)
    rank.heartbeat(10)
    rank.heartbeat(25)
    assert rank.server.asked == 0
    rank.heartbeat(31)
    assert rank.server.asked == 1


def test_a_flight_recorder_that_goes_on_is_movement_too(rank):
    rank.step(5, 9.5)
    rank.heartbeat(10)
    rank.heartbeat(13)
    rank.server.enqueued = 6
    assert rank.heartbeat(15).moved_ns == T0 + 15 * SECOND


def test_counters_from_before_a_movement_are_not_shown_after_it(rank):
    rank.step(5, 9.5)
    rank.heartbeat(10)
    assert rank.heartbeat(13).groups
    rank.step(6, 13.5)
    assert rank.heartbeat(14).groups is None


def test_a_send_after_a_collective_leaves_the_count_of_collectives_known(rank):
    send, reduce = OPERATIONS.index("send"), OPERATIONS.index("allreduce")
    for at, (code, index) in enumerate(((reduce, 1), (reduce, 2), (send, 0))):
        rank.ring.write(RecordKind.CALL, code, index, T0 + at, 1, 0, 0, 8, at)
    found = rank.heartbeat(1)
    assert list(found.calls.values()) == [2]
    assert found.last_call.operation == "send"


# ------------------------------------------------------------------------------------------------ paceline's own exchange


def in_group_0(index, operation="gloo:all_reduce"):
    return {
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": index,
        "op_id": index,
        "profiling_name": operation,
        "time_created_ns": T0 + index,
    }


def test_how_far_a_rank_is_in_our_own_groups_needs_no_asking(rank):
    rank.ring.cells[Cell.WORLD_SIZE] = 4
    rank.group(1, "0", [0, 1, 2, 3])
    rank.group(77, "gradients/0", [1, 3])
    rank.exchange(0, 8, over=7, at_seconds=9.4)
    rank.exchange(1, 3, over=3, at_seconds=9.5, group=77)
    world, lane = rank.heartbeat(10).exchanges
    assert (world.name, world.enqueued, world.completed, world.everybody, world.ranks) == ("0", 8, 7, True, None)
    assert (world.operation, world.dtype, world.numel) == ("all_reduce", "float32", 100)
    assert (lane.name, lane.enqueued, lane.completed, lane.everybody, lane.ranks) == (
        "gradients/0",
        3,
        3,
        False,
        (1, 3),
    )
    assert rank.server.asked == 0


def test_an_exchange_that_ends_is_movement(rank):
    rank.exchange(0, 1, over=0, at_seconds=9.5)
    rank.heartbeat(10)
    stood = rank.heartbeat(14).moved_ns
    rank.ring.cells[FIRST_CELL + 2] = 1
    assert rank.heartbeat(15).moved_ns == T0 + 15 * SECOND > stood


def test_of_a_group_in_both_sources_the_ring_has_the_whole(rank):
    rank.group(1, "0", [0, 1])
    rank.exchange(0, 8, over=8, at_seconds=9.5)
    rank.server.entries = [in_group_0(5)]
    rank.heartbeat(10)
    found = rank.heartbeat(14)
    assert rank.server.asked == 1
    assert (found.groups, [c.enqueued for c in found.exchanges]) == ((), [8])
    assert [(entry.index, entry.operation) for entry in rank.watch.traces(rank.collector)[3]] == [(8, "all_reduce")]


def test_traces_hold_what_torch_and_what_we_ran_in_the_order_of_time(rank):
    rank.group(77, "gradients/0", [0, 1])
    rank.exchange(0, 1, over=1, at_seconds=0.5, group=77)
    rank.exchange(0, 2, over=2, at_seconds=2.5, group=77)
    rank.server.entries = [in_group_0(5), in_group_0(SECOND)]
    rank.heartbeat(10)
    found = rank.watch.traces(rank.collector)[3]
    assert [(entry.group, entry.index) for entry in found] == [
        *(("0", 5), ("gradients/0", 1)),
        *(("0", SECOND), ("gradients/0", 2)),
    ]
    assert found[1].created_ns == T0 + SECOND // 2


def test_sends_and_receives_of_ours_are_no_entries(rank):
    rank.exchange(0, 1, over=1, at_seconds=0.5, operation="send")
    rank.heartbeat(10)
    assert rank.watch.traces(rank.collector) == {}


def test_a_group_whose_first_exchange_came_since_the_last_look_is_known_to_be_ours(rank):
    rank.heartbeat(10)
    rank.group(1, "0", [0, 1])
    rank.exchange(0, 1, over=1, at_seconds=10.1)
    rank.server.entries = [in_group_0(1)]
    assert rank.watch.traces(rank.collector) == {}
    rank.heartbeat(11)
    assert [(entry.index, entry.dtype) for entry in rank.watch.traces(rank.collector)[3]] == [(1, "float32")]
