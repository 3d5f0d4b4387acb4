"""The progress of a rank that keeps no ring."""

import pytest

from paceline.attach.heartbeat import RankFacts, heartbeat_of, longest_pause, phase_of
from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.flight_recorder import Trace, TraceEntry
from paceline.diagnosis.snapshots import Frame, RankSnapshot, Socket, ThreadStack
from paceline.probes.stacks import MOST_FRAMES

NOW_NS = 1_795_000_000_000_000_000
SECOND = 1_000_000_000
TORCH = "/venv/lib/python3.11/site-packages/torch/"
MODULE = ("/home/me/train.py", "<module>")


def snapshot(*frames, **fields):
    stack = ThreadStack(
        pid=7,
        thread="MainThread",
        main=True,
        frames=tuple(Frame(file=file, line=1, function=name, users=file.startswith("/home")) for file, name in frames),
    )
    known = {"host": "a", "rank": 0, "pid": 7, "at_ns": NOW_NS, "state": "S", "cpu_fraction": 0.0}
    return RankSnapshot(**{**known, "stacks": (stack,) if frames else None, **fields})


def entries(*seconds_ago):
    return tuple(
        TraceEntry(group="0", index=number + 1, operation="allreduce", created_ns=NOW_NS - int(ago * SECOND))
        for number, ago in enumerate(seconds_ago)
    )


def heartbeat(**fields):
    known = {
        "rank": 0,
        "host": "a",
        "at_ns": NOW_NS,
        "started_ns": NOW_NS - 60 * SECOND,
        "cpu_seconds": 1.0,
        "state": "S",
    }
    return heartbeat_of(RankFacts(**{**known, "trace": None, "snapshot": None, "environment": {}, **fields}))


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([(TORCH + "distributed/distributed_c10d.py", "_new_process_group_helper"), MODULE], "rendezvous"),
        ([(TORCH + "distributed/rendezvous.py", "_env_rendezvous_handler"), MODULE], "rendezvous"),
        (
            [
                ("/usr/lib/python3.11/selectors.py", "select"),
                (TORCH + "utils/data/dataloader.py", "_try_get_data"),
                MODULE,
            ],
            "data",
        ),
        ([(TORCH + "serialization.py", "save"), MODULE], "checkpoint"),
        ([(TORCH + "distributed/distributed_c10d.py", "all_reduce"), MODULE], "communication"),
        ([(TORCH + "nn/modules/linear.py", "forward"), MODULE], "training"),
        ([MODULE], "training"),
    ],
)
def test_the_phase_is_told_by_the_stack(frames, phase):
    assert phase_of(snapshot(*frames)) == phase


@pytest.mark.parametrize(
    ("fields", "phase"),
    [
        ({"wait_channel": "futex_wait_queue"}, "communication"),
        ({"wait_channel": "hrtimer_nanosleep"}, "training"),
        ({"wait_channel": "futex_wait_queue", "cpu_fraction": 0.6}, "training"),
        ({"wait_channel": "futex_wait_queue", "state": "R"}, "training"),
        ({}, "training"),
    ],
)
def test_without_a_stack_the_kernel_tells_a_wait_from_work(fields, phase):
    assert phase_of(snapshot(**fields)) == phase


def test_a_rank_has_moved_when_it_issued_its_newest_call():
    made = heartbeat(trace=Trace(entries=entries(30, 20, 4)))
    assert made.moved_ns == NOW_NS - 4 * SECOND


def test_without_a_recorder_its_connections_say_when_it_moved():
    quiet = Socket(
        local="a:1",
        remote="b:2",
        state="ESTABLISHED",
        receive_queue_bytes=0,
        send_queue_bytes=0,
        sent_bytes=9,
        last_sent_ms=2500,
    )
    made = heartbeat(snapshot=snapshot(MODULE, sockets=(quiet,)))
    assert made.moved_ns == NOW_NS - 2_500_000_000


def test_with_nothing_to_go_by_it_has_moved_since_its_imports_and_never_after_now():
    assert heartbeat().moved_ns == NOW_NS - 50 * SECOND
    assert heartbeat(started_ns=NOW_NS - SECOND).moved_ns == NOW_NS


def test_a_recorder_that_is_not_read_is_not_an_empty_one():
    assert heartbeat().groups is None
    assert heartbeat(trace=Trace()).groups == ()


def test_its_pace_is_the_longest_pause_of_its_newest_calls():
    assert longest_pause(entries(*range(40, 30, -1))) == 1.0
    assert longest_pause(entries(50, *range(40, 30, -1))) == 10.0
    assert longest_pause(entries(3, 2, 1)) is None
    assert heartbeat(trace=Trace(entries=entries(*range(40, 30, -1)))).step_seconds == pytest.approx(0.6)


def test_without_a_snapshot_a_call_that_is_not_over_is_a_wait():
    open_, over = (GroupCounters(name="0", enqueued=5, completed=done) for done in (4, 5))
    assert heartbeat(trace=Trace(groups=(open_,))).phase == "communication"
    assert heartbeat(trace=Trace(groups=(over,))).phase == "training"


def test_a_main_thread_behind_its_program_leaves():
    assert heartbeat(snapshot=snapshot(("/home/me/train.py", "at_exit"))).finalizing_ns is not None
    assert heartbeat(snapshot=snapshot(("/home/me/train.py", "f"), MODULE)).finalizing_ns is None


def test_one_that_waits_for_its_threads_or_whose_stack_is_cut_off_may_train():
    joins = snapshot(("/usr/lib/python3.11/threading.py", "_shutdown"))
    deep = snapshot(*[(TORCH + "_inductor/scheduler.py", "visit")] * MOST_FRAMES)
    assert heartbeat(snapshot=joins).finalizing_ns is None
    assert heartbeat(snapshot=deep).finalizing_ns is None


def test_a_send_has_the_peer_that_its_stack_shows():
    inside = snapshot((TORCH + "distributed/distributed_c10d.py", "recv"), MODULE)
    call = heartbeat(snapshot=inside, peer=("recv", 1)).last_call
    assert (call.operation, call.root, call.index, str(call.site)) == ("recv", 1, 0, "/home/me/train.py:1 in <module>")
