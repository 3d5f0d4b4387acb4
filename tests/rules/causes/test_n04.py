"""N04: one rank at long work, with progress to be seen."""

import pytest

from paceline.diagnosis.hang.activity import what_it_does
from paceline.findings import Confidence

TRAIN = "/home/me/train.py"
TORCH = "/venv/site-packages/torch"
SAVE = (f"{TORCH}/serialization.py:900 _save", f"{TORCH}/serialization.py:700 save", f"{TRAIN}:55 main")
EVALUATE = (f"{TORCH}/nn/modules/linear.py:125 forward", f"{TRAIN}:30 evaluate", f"{TRAIN}:90 main")


def rank_0_late(stall, **fields):
    return stall(late=(0,), waiting=(1, 2, 3), **fields)


def test_a_save_is_waited_for(found, case, snapshot, stall):
    saving = snapshot(0, *SAVE, written_bytes_per_second=80e6, cpu_fraction=0.5)
    (finding,) = found("N04", case(world_size=4, still=rank_0_late(stall), snapshots=[saving]))
    assert (finding.level, finding.ranks, finding.confidence) == ("waiting", (0,), Confidence.HIGH)
    assert finding.title == "rank 0 saves or loads a checkpoint while the others wait"
    assert finding.saw[0] == "rank 0 makes progress: disk 80.0 MB/s, cpu 0.5 cores"
    assert f"{TRAIN}:55" in finding.next[0]


def test_a_write_whose_disk_moves_is_slow_and_not_stuck(found, case, snapshot, stall):
    path = "/ckpt/step_40.pt (ext4 on /ckpt)"
    saving = snapshot(0, *SAVE, state="D", blocked_on=path, disk_bytes_per_second=4e6)
    (finding,) = found("N04", case(world_size=4, still=rank_0_late(stall), snapshots=[saving]))
    assert (finding.level, finding.ranks, finding.confidence) == ("waiting", (0,), Confidence.LIKELY)
    assert finding.saw[0] == "rank 0 makes progress: the disk that it waits for moves 4.0 MB/s"
    assert f"it waits on {path}" in finding.saw and "faster disk" in finding.next[0]


def test_an_evaluation_is_waited_for(found, case, snapshot, stall, call, heartbeat):
    heartbeats = [heartbeat(rank, last_call=call(operation="barrier", size_bytes=0)) for rank in range(4)]
    at_barrier = rank_0_late(stall, operation="barrier")
    busy = snapshot(0, *EVALUATE, cpu_fraction=1.0, stack_moved=True)
    (finding,) = found("N04", case(world_size=4, still=at_barrier, snapshots=[busy], heartbeats=heartbeats))
    assert finding.title == "rank 0 evaluates while the others wait"
    assert finding.confidence is Confidence.HIGH
    assert "in barrier" in " ".join(finding.saw)


def test_a_rank_whose_counters_move_is_at_work(found, case, snapshot, stall):
    moving = rank_0_late(stall, level="waiting", progress=("its counters move",))
    (finding,) = found("N04", case(world_size=4, still=moving, snapshots=[snapshot(0)]))
    assert finding.level == "waiting"


def test_cpu_in_one_place_is_unclear(found, case, snapshot):
    (finding,) = found("N04", case(snapshots=[snapshot(1, cpu_fraction=1.0, stack_moved=True)]))
    assert finding.confidence is Confidence.UNCLEAR


@pytest.mark.parametrize(
    "seen", [{}, {"state": "T", "cpu_fraction": 1.0}, {"frozen": True, "cpu_fraction": 1.0}, {"state": "D"}]
)
def test_without_progress_it_is_silent(found, case, snapshot, seen):
    assert not found("N04", case(snapshots=[snapshot(1, *EVALUATE, **seen)]))


def test_a_compile_and_a_loader_are_left_to_their_own_causes(found, case, snapshot):
    compiles = snapshot(1, f"{TORCH}/_inductor/scheduler.py:10 fuse", f"{TRAIN}:3 main", cpu_fraction=1.0)
    loads = snapshot(
        1, f"{TORCH}/utils/data/dataloader.py:9 _try_get_data", f"{TRAIN}:3 main", children_cpu_fraction=1.0
    )
    assert not found("N04", case(snapshots=[compiles]))
    assert not found("N04", case(snapshots=[loads]))


def test_work_of_all_is_nobodys_alone(found, case, snapshot, stall):
    all_busy = [snapshot(rank, *EVALUATE, cpu_fraction=1.0, stack_moved=True) for rank in (0, 1)]
    assert not found("N04", case(still=stall(late=(0, 1), waiting=()), snapshots=all_busy))


def test_without_a_snapshot_it_is_not_judged(missing, case):
    assert missing("N04", case()) == "a snapshot of rank 1"


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (("/usr/lib/python3/urllib/request.py:5 urlopen", f"{TRAIN}:5 main"), "downloads"),
        ((f"{TRAIN}:5 tokenise_corpus",), "tokenises"),
        ((f"{TRAIN}:5 main",), None),
        (("/usr/lib/python3/threading.py:5 save",), None),
    ],
)
def test_work_is_recognised_by_its_names(stack, frames, words):
    assert what_it_does(stack(*frames).frames) == words
