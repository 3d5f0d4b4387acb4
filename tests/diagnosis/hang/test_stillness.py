"""What two snapshots of a rank, and its heartbeats, prove of what it did between them."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Heartbeat
from paceline.diagnosis.hang.stillness import CpuUse, seen_still, waits_for_files
from paceline.diagnosis.snapshots import Child, Frame, RankSnapshot, Socket, ThreadStack

SECOND = 1_000_000_000
FRAMES = (Frame(file="/home/me/train.py", line=14, function="main", users=True),)
STACK = ThreadStack(pid=7, thread="MainThread", main=True, frames=FRAMES)
IDLE = RankSnapshot(
    host="a", rank=1, pid=7, at_ns=0, state="S", cpu_fraction=0.0, read_bytes_per_second=0.0, written_bytes_per_second=0.0,
    cpu_seconds=9.0, moved_bytes=1000, stacks=(STACK,),
)  # fmt: skip
SOCKET = Socket(
    local="10.0.0.1:5",
    remote="52.1.2.3:443",
    state="ESTABLISHED",
    receive_queue_bytes=0,
    send_queue_bytes=0,
    sent_bytes=0,
)


def after(seconds, **fields):
    return replace(IDLE, at_ns=int(seconds * SECOND), **fields)


def test_nothing_moved_from_the_first_snapshot_to_the_last():
    still = seen_still(seen_still(seen_still(None, IDLE), after(2.0)), after(7.0))
    assert (still.snapshots, still.seconds) == (3, 7.0)


@pytest.mark.parametrize(
    "seen",
    [
        {"cpu_seconds": 9.4},
        {"cpu_seconds": 8.0},
        {"moved_bytes": 1_000_000},
        {"stacks": (replace(STACK, frames=(replace(FRAMES[0], function="evaluate"),)),)},
        {"sockets": (replace(SOCKET, sent_bytes=4_000_000),)},
        {"pid": 8},
    ],
)
def test_what_went_on_between_two_snapshots_begins_it_anew(seen):
    still = seen_still(seen_still(None, replace(IDLE, sockets=(SOCKET,))), after(2.0, **seen))
    assert (still.snapshots, still.seconds) == (1, 0.0)


@pytest.mark.parametrize(
    "seen",
    [
        {"state": "R"},
        {"thread_states": {"S": 3, "R": 1}},
        {"cpu_fraction": 0.3},
        {"written_bytes_per_second": 5e6},
        {"cpu_fraction": None},
        {"read_bytes_per_second": None, "written_bytes_per_second": None},
        {"state": None},
    ],
)
def test_a_snapshot_with_something_that_moves_or_too_little_to_tell_proves_nothing(seen):
    assert seen_still(seen_still(None, IDLE), after(2.0, **seen)) is None


def test_a_stopped_rank_does_nothing_whatever_its_counters_say():
    stopped = {"state": "T", "cpu_fraction": None, "read_bytes_per_second": None, "written_bytes_per_second": None}
    assert seen_still(seen_still(None, after(0.0, **stopped)), after(2.0, **stopped)).snapshots == 2


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"state": "D"}, True),
        ({"system_call": "fsync", "blocked_on": "/mnt/model.pt (ext4 on /mnt)"}, True),
        ({"wait_channel": "fuse_wait_answer"}, True),
        ({"children": (Child(pid=9, state="D", name="pt_data_worker", cpu_fraction=0.0),)}, True),
        ({"system_call": "read", "blocked_on": "socket:[77]"}, False),
        ({"system_call": "clock_nanosleep", "wait_channel": "hrtimer_nanosleep"}, False),
    ],
)
def test_a_wait_for_a_disk_or_a_file_system_is_told_from_others(seen, expected):
    assert waits_for_files(replace(IDLE, **seen)) is expected


def heartbeat(at, cpu, state="S"):
    return {1: Heartbeat(host="a", rank=1, at_ns=int(at * SECOND), moved_ns=0, state=state, cpu_seconds=cpu)}


def test_heartbeats_say_since_when_a_rank_has_used_no_cpu():
    use = CpuUse()
    for at in range(10):
        use.note(heartbeat(at, 5.0 + min(at, 3)))
    assert use.idle_since_ns(1) == 3 * SECOND
    use.note(heartbeat(9.5, 8.0, state="R"))
    assert use.idle_since_ns(1) == int(9.5 * SECOND)


def test_a_share_of_a_full_core_is_seen_over_time():
    use = CpuUse()
    for half in range(40):
        use.note(heartbeat(half / 2, 5.0 + 0.1 * half))
    assert use.idle_since_ns(1) >= 18 * SECOND


def test_without_counters_nothing_is_known():
    use = CpuUse()
    use.note(heartbeat(1, None))
    assert use.idle_since_ns(1) is None
