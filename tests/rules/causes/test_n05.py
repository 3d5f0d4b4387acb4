"""N05: a compile on some of the ranks."""

import pytest

from paceline.findings import Confidence

TRAIN = "/home/me/train.py"
TORCH = "/venv/site-packages/torch"
INDUCTOR = (
    f"{TORCH}/_inductor/codecache.py:200 compile",
    f"{TORCH}/_dynamo/convert_frame.py:50 _compile",
    f"{TRAIN}:60 step",
)
RUNS_COMPILED = (
    f"{TORCH}/nn/functional.py:10 relu",
    f"{TORCH}/_dynamo/eval_frame.py:700 compile_wrapper",
    f"{TRAIN}:60 step",
)


def test_a_compile_is_recognised_by_its_stack(found, case, snapshot):
    (finding,) = found("N05", case(snapshots=[snapshot(1, *INDUCTOR, cpu_fraction=1.0)]))
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "waiting", Confidence.HIGH)
    assert finding.title == "rank 1 compiles again while the others wait"


def test_a_compiler_below_the_rank_is_named(found, case, snapshot, child):
    gcc = child("R", pid=3000, role="compiler", name="cc1plus", cpu_fraction=0.9)
    waits = ("/usr/lib/python3/subprocess.py:9 wait", f"{TRAIN}:60 step")
    (finding,) = found("N05", case(snapshots=[snapshot(1, *waits, children=(gcc,), children_cpu_fraction=0.9)]))
    assert "below it runs cc1plus (pid 3000)" in finding.saw


def test_a_compile_that_does_not_move_is_a_stall(found, case, snapshot):
    (finding,) = found("N05", case(snapshots=[snapshot(1, *INDUCTOR)]))
    assert (finding.level, finding.confidence) == ("stall", Confidence.LIKELY)


@pytest.mark.parametrize("frames", [RUNS_COMPILED, (f"{TRAIN}:40 main",)])
def test_running_compiled_code_is_no_compile(found, case, snapshot, frames):
    assert not found("N05", case(snapshots=[snapshot(1, *frames, cpu_fraction=1.0)]))


def test_a_compile_of_all_ranks_keeps_nobody_waiting(found, case, snapshot, stall):
    everybody = stall(late=(0, 1), waiting=())
    snapshots = [snapshot(rank, *INDUCTOR, cpu_fraction=1.0) for rank in (0, 1)]
    assert not found("N05", case(still=everybody, snapshots=snapshots))


def test_without_a_snapshot_it_is_not_judged(missing, case):
    assert missing("N05", case()) == "a snapshot of rank 1"
