"""N03: a DataLoader worker that does not deliver."""

import pytest

from paceline.findings import Confidence

TRAIN = "/home/me/train.py"
LOADER = "/venv/torch/utils/data/dataloader.py:1251 _try_get_data"
LOOP = "/venv/torch/utils/data/_utils/worker.py:349 _worker_loop"
MAIN = ("/usr/lib/python3/queue.py:180 get", LOADER, f"{TRAIN}:90 <module>")
STUCK = (f"{TRAIN}:12 __getitem__", LOOP, f"{TRAIN}:90 <module>")
IDLE = ("/usr/lib/python3/multiprocessing/connection.py:948 wait", LOOP, f"{TRAIN}:90 <module>")


def test_the_stuck_worker_and_its_line_are_named(found, case, snapshot, child):
    workers = (child("S", *IDLE, pid=2000), child("S", *STUCK, pid=2001))
    (finding,) = found("N03", case(snapshots=[snapshot(1, *MAIN, children=workers)]))
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "stall", Confidence.HIGH)
    assert finding.saw[0] == f"loader worker 2001 stands at {TRAIN}:12 in __getitem__ (state S, 0.00 CPUs)"
    assert "2 loader workers below it" in finding.saw[1]
    assert finding.next[0].startswith(f"{TRAIN}:12")


def test_a_lock_taken_over_by_fork_gets_its_remedy(found, case, snapshot, child):
    worker = child("S", "/venv/cv2/__init__.py:4 resize", f"{TRAIN}:12 __getitem__", LOOP)
    (finding,) = found("N03", case(snapshots=[snapshot(1, *MAIN, children=(worker,))]))
    assert any("spawn" in step for step in finding.next)


def test_a_worker_that_computes_is_slow_and_not_stuck(found, case, snapshot, child):
    worker = child("R", *STUCK, cpu_fraction=0.9)
    (finding,) = found("N03", case(snapshots=[snapshot(1, *MAIN, children=(worker,), children_cpu_fraction=0.9)]))
    assert (finding.level, finding.confidence) == ("waiting", Confidence.LIKELY)


def test_workers_that_nobody_can_read_leave_it_likely(found, case, snapshot, child):
    (finding,) = found("N03", case(snapshots=[snapshot(1, *MAIN, children=(child("S"),))]))
    assert finding.saw[0] == "loader worker 2001 (its stack could not be read) (state S, 0.00 CPUs)"


def test_a_rank_that_waits_for_no_loader_is_left_alone(found, case, snapshot, child):
    assert not found("N03", case(snapshots=[snapshot(1, children=(child("S", *STUCK),))]))


@pytest.mark.parametrize("state", ["T", "D"])
def test_a_rank_that_cannot_run_is_left_alone(found, case, snapshot, state):
    assert not found("N03", case(snapshots=[snapshot(1, *MAIN, state=state)]))


def test_facts_that_are_missing_are_named(missing, case, snapshot):
    assert missing("N03", case(snapshots=[snapshot(1, *MAIN, children=None)])) == "the processes below rank 1"
    assert missing("N03", case(snapshots=[snapshot(1, stacks=None)])) == "the stack of rank 1"
