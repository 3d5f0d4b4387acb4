"""Whether ranks that others wait for get anywhere: a stall and snapshots of its late ranks."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Level, Stall
from paceline.diagnosis.hang.stall import with_snapshots
from paceline.diagnosis.snapshots import Frame, RankSnapshot, Socket, ThreadStack

SECOND = 1_000_000_000
NOW = 1_795_000_000 * SECOND


def a_stall(late=(1,), waiting=(0,), **fields):
    known = {"level": Level.STALL, "since_ns": NOW - 4 * SECOND, "detected_ns": NOW, "threshold_seconds": 3.0}
    return Stall(**{"late": late, "waiting": waiting, **known, **fields})


def snapshot(rank=1, *functions, seconds_later=0, **fields):
    frames = tuple(
        Frame(file="/home/me/train.py", line=10, function=name, users=True) for name in functions or ("main",)
    )
    stack = ThreadStack(pid=100 + rank, thread="MainThread", main=True, frames=frames)
    known = {"host": "algo-1", "rank": rank, "pid": 100 + rank, "at_ns": NOW + seconds_later * SECOND, "seconds": 0.5}
    return RankSnapshot(**{"state": "S", "stacks": (stack,), "cpu_fraction": 0.0, **known, **fields})


def connection(remote):
    return Socket(
        local="10.0.0.5:40000",
        remote=remote,
        state="ESTABLISHED",
        receive_queue_bytes=0,
        send_queue_bytes=0,
        received_bytes=9_000_000,
        last_received_ms=12,
    )


@pytest.fixture
def still():
    return a_stall()


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"cpu_fraction": 0.98}, ("cpu 1.0 cores",)),
        ({"children_cpu_fraction": 1.6}, ("cpu 1.6 cores",)),
        ({"state": "R", "cpu_fraction": 0.042}, ("it waits for a CPU",)),
        ({"state": "R", "cpu_fraction": 0.0}, ("it waits for a CPU",)),
        (
            {"thread_states": {"S": 15, "R": 1}, "cpu_fraction": 0.07, "wait_channel": "futex_wait_queue"},
            ("one of its threads waits for a CPU",),
        ),
        ({"written_bytes_per_second": 12e6}, ("disk 12.0 MB/s",)),
        ({"read_bytes_per_second": 90e3, "state": "D"}, ("disk 90 kB/s",)),
        ({"throttled_fraction": 0.8}, ("throttled 80% of the time by its CPU quota",)),
        ({"stack_moved": True, "cpu_fraction": 0.06}, ("its stack changes",)),
        ({"state": "D", "disk_bytes_per_second": 4e6}, ("the disk that it waits for moves 4.0 MB/s",)),
        ({"state": "D", "disk_bytes_per_second": 4e6, "written_bytes_per_second": 2e6}, ("disk 2.0 MB/s",)),
        ({"sockets": ("10.0.0.7:443",)}, ("receives from outside the job",)),
    ],
)
def test_a_late_rank_that_gets_somewhere_is_waited_for(still, seen, words):
    if "sockets" in seen:
        seen = {"sockets": tuple(connection(remote) for remote in seen["sockets"])}
    found = with_snapshots(still, {1: snapshot(**seen)})
    assert (found.level, found.progress) == (Level.WAITING, words)


@pytest.mark.parametrize(
    "seen",
    [
        {},
        {"cpu_fraction": 0.1},
        {"stack_moved": True, "cpu_fraction": 0.0},
        {"written_bytes_per_second": 4000.0},
        {"state": "T", "cpu_fraction": 0.9},
        {"state": "t", "cpu_fraction": 0.9},
        {"state": "D", "cpu_fraction": 0.9},
        {"state": "D", "disk_bytes_per_second": 4000.0},
        {"state": "S", "disk_bytes_per_second": 4e6},
        {"state": "D", "frozen": True, "disk_bytes_per_second": 4e6},
        {"frozen": True, "cpu_fraction": 0.9, "written_bytes_per_second": 12e6},
        # A helper thread that runs in one sample, of a rank that sleeps or waits for a file lock, a process or the network.
        {"thread_states": {"S": 15, "R": 1}, "cpu_fraction": 0.02},
        {"thread_states": {"S": 15, "R": 1}, "cpu_fraction": 0.04, "wait_channel": "futex_wait_queue"},
        *(
            {"thread_states": {"S": 15, "R": 1}, "cpu_fraction": 0.09, "wait_channel": channel}
            for channel in ("hrtimer_nanosleep", "flock_lock_inode_wait", "do_wait", "do_poll", "pipe_read")
        ),
    ],
)
def test_a_late_rank_that_gets_nowhere_is_a_stall(still, seen):
    found = with_snapshots(still, {1: snapshot(**seen)})
    assert (found.level, found.progress) == (Level.STALL, ())


def test_what_comes_from_a_rank_of_the_job_is_no_progress(still):
    of_the_job = replace(connection("10.0.0.7:443"), peer_host="algo-2")
    quiet = replace(connection("10.0.0.7:443"), last_received_ms=9000)
    found = with_snapshots(still, {1: snapshot(sockets=(of_the_job, quiet, connection("127.0.0.1:99")))})
    assert found.level is Level.STALL


def test_one_of_two_late_ranks_that_gets_nowhere_is_a_stall():
    still = a_stall(late=(1, 2))
    found = with_snapshots(still, {1: snapshot(1, cpu_fraction=1.0), 2: snapshot(2)})
    assert (found.level, found.progress) == (Level.STALL, ("cpu 1.0 cores",))


def test_where_nobody_waits_ranks_at_rest_merely_pause_unless_one_is_stopped():
    still = a_stall(late=(1, 2), waiting=())
    assert with_snapshots(still, {1: snapshot(1, cpu_fraction=1.0), 2: snapshot(2)}).level is Level.WAITING
    assert with_snapshots(still, {1: snapshot(1, cpu_fraction=1.0), 2: snapshot(2, state="T")}).level is Level.STALL
    assert with_snapshots(still, {1: snapshot(1), 2: snapshot(2)}).level is Level.WAITING


def test_a_rank_before_the_lock_of_one_that_gets_on_is_no_stall():
    asks = (Frame(file="/venv/filelock/_api.py", line=1177, function="_poll_until_acquired"),)
    polls = replace(snapshot(1), stacks=(replace(snapshot(1).stacks[0], frames=asks),))
    still = a_stall(late=(1, 2))
    for waits in (polls, snapshot(1, wait_channel="locks_lock_inode_wait")):
        assert with_snapshots(still, {1: waits, 2: snapshot(2, cpu_fraction=0.9)}).level is Level.WAITING
        assert with_snapshots(still, {1: waits, 2: snapshot(2)}).level is Level.STALL


def test_a_rank_nobody_could_look_at_changes_nothing(still):
    assert with_snapshots(still, {}) == still
    assert with_snapshots(still, {0: snapshot(0)}).level is Level.STALL


def test_a_rank_whose_counters_move_stays_waited_for_while_it_sleeps_a_little():
    still = a_stall(level=Level.WAITING, progress=("its counters move",))
    assert with_snapshots(still, {1: snapshot()}).level is Level.WAITING


def test_a_rank_that_burns_cpu_in_one_place_is_a_stall_after_two_minutes(still):
    busy = {"cpu_fraction": 1.0}
    found = with_snapshots(still, {1: snapshot(**busy)})
    for later_on in (30, 60, 119):
        found = with_snapshots(still, {1: snapshot(seconds_later=later_on, **busy)}, found)
        assert found.level is Level.WAITING
    assert with_snapshots(still, {1: snapshot(seconds_later=121, **busy)}, found).level is Level.STALL
    writing = snapshot(seconds_later=121, written_bytes_per_second=1e6, **busy)
    assert with_snapshots(still, {1: writing}, found).level is Level.WAITING


def test_a_rank_that_burns_cpu_here_and_there_goes_on_being_waited_for(still):
    found = with_snapshots(still, {1: snapshot(1, "tokenise", cpu_fraction=1.0)})
    found = with_snapshots(still, {1: snapshot(1, "merge", seconds_later=90, cpu_fraction=1.0)}, found)
    found = with_snapshots(still, {1: snapshot(1, "merge", seconds_later=150, cpu_fraction=1.0)}, found)
    assert found.level is Level.WAITING


@pytest.mark.parametrize(
    "frame",
    [
        Frame(file="/venv/torch/autograd/graph.py", line=841, function="_engine_run_backward"),
        Frame(file="/venv/tensorflow/python/eager/execute.py", line=53, function="quick_execute"),
        Frame(file="jax/experimental/multihost_utils.py", line=134, function="process_allgather"),
    ],
    ids=lambda frame: frame.function,
)
def test_stacks_tell_who_is_late_where_the_counters_cannot(frame):
    still = a_stall(late=(), waiting=())
    waits = replace(snapshot(0), stacks=(ThreadStack(pid=100, thread="MainThread", main=True, frames=(frame,)),))
    found = with_snapshots(still, {0: waits, 1: snapshot(1)})
    assert (found.waiting, found.late, found.basis) == ((0,), (1,), "stacks")
    # A rank in the same place that uses a CPU computes: it is late, or goes on.
    found = with_snapshots(still, {0: waits, 1: replace(waits, rank=1, cpu_fraction=0.9)})
    assert (found.waiting, found.late) == ((0,), (1,))


@pytest.mark.parametrize("basis", ["calls", "phase"])
def test_a_late_rank_that_waits_in_its_backward_pass_holds_up_nobody(basis):
    backward = (Frame(file="/venv/torch/autograd/graph.py", line=841, function="_engine_run_backward"),)
    waits = replace(snapshot(0), stacks=(ThreadStack(pid=100, thread="MainThread", main=True, frames=backward),))
    still = a_stall(late=(0, 2), waiting=(1,), basis=basis, group="0", index=1, operation="barrier")
    found = with_snapshots(still, {0: waits, 2: snapshot(2)})
    assert (found.waiting, found.late, found.crossed, found.operation) == ((0, 1), (2,), (), None)
    alone = with_snapshots(replace(still, late=(0,)), {0: waits})
    assert (alone.waiting, alone.late, alone.crossed, alone.level) == ((0, 1), (), (0,), Level.STALL)
    computes = replace(waits, cpu_fraction=0.9)
    assert with_snapshots(replace(still, late=(0,)), {0: computes}).late == (0,)
