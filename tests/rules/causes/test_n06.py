"""N06: a loop that does not end."""

import pytest

from paceline.findings import Confidence

TRAIN = "/home/me/train.py"
TORCH = "/venv/site-packages/torch"
REGEX = ("/usr/lib/python3.11/re/__init__.py:166 match", f"{TRAIN}:40 parse")


def test_a_loop_in_python(found, case, snapshot):
    (finding,) = found("N06", case(snapshots=[snapshot(1, cpu_fraction=0.99, state="R", stack_moved=True)]))
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "waiting", Confidence.LIKELY)
    assert f"{TRAIN}:40" in finding.next[0]


def test_a_regular_expression_that_explodes(found, case, snapshot):
    locked = snapshot(1, *REGEX, cpu_fraction=0.99, ping_answers=True, traceback_answers=False)
    (finding,) = found("N06", case(snapshots=[locked]))
    assert "its Python does not answer: C code keeps the interpreter's lock" in finding.saw


def test_a_rank_with_a_gpu_may_wait_for_a_kernel(found, case, snapshot):
    (finding,) = found("N06", case(snapshots=[snapshot(1, cpu_fraction=0.99, gpus=(0,))]))
    assert "it may be a kernel that does not end" in finding.saw[-1]
    assert "CUDA_LAUNCH_BLOCKING=1" in finding.next[1]
    (without,) = found("N06", case(snapshots=[snapshot(1, cpu_fraction=0.99, gpus=())]))
    assert "kernel that" not in " ".join(without.saw) and "CUDA" not in " ".join(without.next)


def test_on_a_full_machine_standing_in_line_is_enough(found, case, snapshot):
    assert found("N06", case(snapshots=[snapshot(1, cpu_fraction=0.1, state="R")]))


def test_after_two_minutes_in_one_place_it_is_a_stall(found, case, snapshot, stall, at):
    still = stall(places={1: (1, at(60 - 130))})
    (finding,) = found("N06", case(still=still, snapshots=[snapshot(1, cpu_fraction=0.99)]))
    assert (finding.level, finding.confidence) == ("stall", Confidence.HIGH)
    assert "for 130 s" in finding.saw[0]


@pytest.mark.parametrize(
    ("backend", "basis", "sure"),
    [("nccl", "steps", False), ("ucc", "calls", False), ("nccl", "flight recorder", True), ("gloo", "steps", True)],
)
def test_a_busy_core_may_be_the_wait_for_a_device_whose_calls_nobody_shows(
    found, case, snapshot, heartbeat, stall, at, backend, basis, sure
):
    still = stall(basis=basis, places={1: (1, at(60 - 130))})
    heartbeats = [heartbeat(rank, rendezvous={"backend": backend}) for rank in range(2)]
    (finding,) = found("N06", case(still=still, heartbeats=heartbeats, snapshots=[snapshot(1, cpu_fraction=0.99)]))
    assert finding.confidence is (Confidence.HIGH if sure else Confidence.LIKELY)
    assert ("no flight recorder shows them" in " ".join(finding.saw)) is not sure


def test_work_that_has_a_name_leaves_it_unclear(found, case, snapshot):
    (finding,) = found("N06", case(snapshots=[snapshot(1, f"{TRAIN}:40 tokenise", cpu_fraction=0.99)]))
    assert finding.confidence is Confidence.UNCLEAR


@pytest.mark.parametrize(
    "seen",
    [
        {"cpu_fraction": 0.02},
        {"cpu_fraction": 0.99, "state": "T"},
        {"cpu_fraction": 0.99, "written_bytes_per_second": 1e6},
        {"cpu_fraction": 0.99, "throttled_fraction": 0.9},
    ],
)
def test_look_alikes_are_left_to_others(found, case, snapshot, seen):
    assert not found("N06", case(snapshots=[snapshot(1, **seen)]))


def test_a_stack_that_moves_through_a_library_is_work(found, case, snapshot):
    frames = (f"{TORCH}/nn/modules/linear.py:125 forward", f"{TRAIN}:30 main")
    assert not found("N06", case(snapshots=[snapshot(1, *frames, cpu_fraction=1.0, stack_moved=True)]))


def test_a_compile_is_no_loop(found, case, snapshot):
    frames = (f"{TORCH}/_inductor/scheduler.py:125 fuse", f"{TRAIN}:30 main")
    assert not found("N06", case(snapshots=[snapshot(1, *frames, cpu_fraction=1.0)]))


def test_without_a_stack_it_is_not_judged(missing, case, snapshot):
    assert missing("N06", case(snapshots=[snapshot(1, stacks=None, cpu_fraction=1.0)])) == "the stack of rank 1"
