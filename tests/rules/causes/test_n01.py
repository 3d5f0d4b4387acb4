"""N01: asleep in its own code, and the look-alikes it must leave to others."""

import pytest

from paceline.diagnosis.case import Level
from paceline.diagnosis.snapshots import Socket
from paceline.findings import Confidence

TRAIN = "/home/me/train.py"
TORCH = "/venv/site-packages/torch"


def test_it_names_the_rank_and_the_line(found, case, snapshot, witness):
    (finding,) = found("N01", case(snapshots=[snapshot(1), witness(0)]))
    assert (finding.ranks, finding.level, finding.since_step) == ((1,), "stall", 12)
    assert finding.confidence is Confidence.HIGH
    assert f"{TRAIN}:40" in finding.saw[0]
    assert f"{TRAIN}:40" in finding.next[0]


@pytest.mark.parametrize(
    ("innermost", "words"),
    [
        ("/usr/lib/python3.11/threading.py:327 wait", "a lock or an event"),
        ("/usr/lib/python3.11/http/client.py:1395 getresponse", "an HTTP answer"),
        ("/usr/lib/python3.11/subprocess.py:1264 wait", "a child process"),
        ("/usr/lib/python3.11/ssl.py:1167 read", "the network"),
    ],
)
def test_it_says_what_the_rank_waits_for(found, case, snapshot, innermost, words):
    (finding,) = found("N01", case(snapshots=[snapshot(1, innermost, f"{TRAIN}:40 fetch")]))
    assert words in finding.saw[0]
    assert f"{TRAIN}:40" in finding.next[0]


def test_a_thread_that_goes_on_behind_a_program_that_is_done_still_counts_as_training(found, case, snapshot):
    (finding,) = found("N01", case(snapshots=[snapshot(1, "/usr/lib/python3.11/threading.py:1590 _shutdown")]))
    assert "waits for threads of the script: its own program is done" in finding.saw[0]
    assert "threading.py" not in finding.next[0]


@pytest.mark.parametrize(
    "seen",
    [
        {"state": "T"},
        {"state": "t"},
        {"state": "D"},
        {"frozen": True},
        {"cpu_fraction": 0.9},
        {"state": "R", "cpu_fraction": 0.1},
        {"written_bytes_per_second": 5e6},
        {"ping_answers": True, "traceback_answers": False},
    ],
)
def test_it_leaves_look_alikes_to_others(found, case, snapshot, seen):
    assert not found("N01", case(snapshots=[snapshot(1, **seen)]))


@pytest.mark.parametrize(
    "frames",
    [
        (f"{TORCH}/distributed/distributed_c10d.py:2800 all_reduce", f"{TRAIN}:40 step"),
        (f"{TORCH}/autograd/graph.py:841 _engine_run_backward", f"{TRAIN}:40 step"),
        (
            "/usr/lib/python3/queue.py:171 get",
            f"{TORCH}/utils/data/dataloader.py:1250 _try_get_data",
            f"{TRAIN}:40 step",
        ),
        ("/usr/lib/python3/subprocess.py:1 wait", f"{TORCH}/_inductor/codecache.py:9 compile", f"{TRAIN}:40 step"),
    ],
)
def test_a_rank_that_waits_in_torch_is_not_asleep(found, case, snapshot, frames):
    assert not found("N01", case(snapshots=[snapshot(1, *frames)]))


def test_the_instruments_own_frames_are_looked_through(found, case, snapshot):
    frames = (
        "/x/paceline/worker/call_log.py:10 call",
        f"{TORCH}/distributed/distributed_c10d.py:28 barrier",
        f"{TRAIN}:4 main",
    )
    assert not found("N01", case(snapshots=[snapshot(1, *frames)]))


def test_a_hook_of_the_user_inside_backward_is_his_own_code(found, case, snapshot):
    frames = (f"{TRAIN}:77 hook", f"{TORCH}/autograd/graph.py:841 _engine_run_backward", f"{TRAIN}:40 step")
    (finding,) = found("N01", case(snapshots=[snapshot(1, *frames)]))
    assert f"{TRAIN}:77" in finding.saw[0]


def test_something_that_arrives_from_outside_is_progress(found, case, snapshot):
    download = Socket(
        local="10.0.0.1:4", remote="93.1.1.1:443", state="ESTABLISHED", receive_queue_bytes=0, send_queue_bytes=0,
        received_bytes=10_000_000, last_received_ms=3,
    )  # fmt: skip
    assert not found("N01", case(snapshots=[snapshot(1, sockets=(download,))]))


def test_without_a_frame_of_the_user_it_is_likely_only(found, case, snapshot):
    (finding,) = found("N01", case(snapshots=[snapshot(1, "/usr/lib/python3.11/threading.py:327 wait")]))
    assert finding.confidence is Confidence.LIKELY


ON_DEVICE = "a device, and no flight recorder shows them"


@pytest.mark.parametrize(
    ("backend", "gpus", "basis", "frames", "sure"),
    [
        ("nccl", (), "steps", (), False),
        ("cpu:gloo,cuda:nccl2", (), "calls", (), False),
        ("xccl", (), "phase", (), False),
        ("nccl-lazy", (0,), "stacks", (f"{TORCH}/nn/modules/module.py:1190 convert", f"{TRAIN}:40 step"), False),
        (None, (0,), "steps", (), False),
        ("nccl", (0,), "flight recorder", (), True),
        ("nccl", (0,), "exchanges", (), True),
        # A lock or a request is none of the device's.
        ("nccl", (0,), "steps", ("/usr/lib/python3.11/http/client.py:1395 getresponse", f"{TRAIN}:40 fetch"), True),
        ("gloo", (0,), "steps", (), True),
        ("gloo", (), "calls", (), True),
        (None, (), "steps", (), True),
    ],
)
def test_where_no_recorder_shows_the_devices_calls_the_line_may_wait_for_one(
    found, case, snapshot, heartbeat, stall, backend, gpus, basis, frames, sure
):
    heartbeats = [heartbeat(rank, rendezvous={"backend": backend} if backend else {}) for rank in range(2)]
    stood = case(still=stall(basis=basis), heartbeats=heartbeats, snapshots=[snapshot(1, *frames, gpus=gpus)])
    (finding,) = found("N01", stood)
    assert finding.confidence is (Confidence.HIGH if sure else Confidence.LIKELY)
    assert (ON_DEVICE in " ".join(finding.saw)) is not sure


def test_two_sleepers_are_two_findings(found, case, snapshot, stall):
    both = case(world_size=4, still=stall(late=(1, 3), waiting=(0, 2)), snapshots=[snapshot(1), snapshot(3)])
    assert [finding.ranks for finding in found("N01", both)] == [(1,), (3,)]


def test_a_rank_before_a_lock_of_one_that_gets_on_is_not_asleep(found, case, snapshot, stall):
    def asleep(level):
        waits, works = snapshot(1, wait_channel="locks_lock_inode_wait"), snapshot(2, cpu_fraction=1.0)
        still = stall(late=(1, 2), waiting=(0,), level=level)
        return found("N01", case(world_size=3, still=still, snapshots=[waits, works]))

    assert not asleep(Level.WAITING)
    (finding,) = asleep(Level.STALL)
    assert "waits for a lock on a file" in finding.saw[0]


def test_a_rank_that_nobody_needs_may_rest_while_others_work(found, case, snapshot, stall):
    still = stall(late=(1, 2), waiting=(), level=Level.WAITING)
    assert not found("N01", case(world_size=3, still=still, snapshots=[snapshot(1), snapshot(2, cpu_fraction=1.0)]))


def test_without_a_stack_it_is_not_judged(missing, case, snapshot):
    blind = snapshot(1, stacks=None, not_judged=("the stacks: py-spy may not trace here",))
    assert missing("N01", case(snapshots=[blind])) == "the stack of rank 1: the stacks: py-spy may not trace here"


def test_without_a_snapshot_it_is_not_judged(missing, case):
    assert missing("N01", case()) == "a snapshot of rank 1"


def test_a_job_that_moves_has_nobody_asleep(found, case, snapshot):
    assert not found("N01", case(still=False, snapshots=[snapshot(1)]))


def test_where_all_wait_and_nobody_is_missing_it_is_silent(found, case, stall, witness):
    everybody = case(still=stall(late=(), waiting=(0, 1)), snapshots=[witness(0), witness(1)])
    assert not found("N01", everybody)


def test_a_rank_that_has_ended_is_not_asleep(found, case, exit_of):
    assert not found("N01", case(exits=(exit_of(1, 0),)))


def test_a_process_is_named_to_be_watched_only_while_the_job_lasts(found, case, snapshot):
    ((_, watch),) = (finding.next for finding in found("N01", case(snapshots=[snapshot(1)])))
    ((line,),) = (finding.next for finding in found("N01", case(snapshots=[snapshot(1)], lasts=False)))
    assert "--pid 1001" in watch and "pid" not in line
