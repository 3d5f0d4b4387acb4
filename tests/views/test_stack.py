"""Stacks of ranks, folded."""

from dataclasses import replace

from paceline.diagnosis.snapshots import Child, Frame, RankSnapshot, ThreadStack
from paceline.diagnosis.stacks import is_waiting_in_collective, place_of
from paceline.views.stack import folded, stack_facts, stack_text

TRAIN = "/home/you/train.py"
TORCH = "/home/you/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAITS = (
    Frame(file=TORCH, line=2810, function="all_reduce"),
    Frame(file=TRAIN, line=31, function="step", users=True),
    Frame(file=TRAIN, line=50, function="<module>", users=True),
)
SLEEPS = (Frame(file=TRAIN, line=28, function="step", users=True), WAITS[-1])


def snapshot(rank, frames, **fields):
    stacks = (ThreadStack(pid=100 + rank, thread="MainThread", main=True, frames=frames),) if frames else None
    values = {"state": "S", "cpu_fraction": 0.0, "stacks": stacks} | fields
    return RankSnapshot(
        host=f"algo-{1 + rank // 4}", rank=rank, pid=100 + rank, at_ns=1_795_000_000_000_000_000, **values
    )


SNAPSHOTS = [snapshot(rank, SLEEPS if rank == 1 else WAITS) for rank in range(8)]


def test_ranks_that_stand_together_are_one_block():
    assert (
        stack_text("r-000001", SNAPSHOTS, lasts=True)
        == f"""\
r-000001  8 ranks now

ranks 0,2-7: asleep, 0.00 cores, on algo-1, algo-2
    torch/distributed/distributed_c10d.py:2810 in all_reduce
  > {TRAIN}:31 in step
  > {TRAIN}:50 in <module>

rank 1: asleep, 0.00 cores, pid 101 on algo-1
  > {TRAIN}:28 in step
  > {TRAIN}:50 in <module>"""
    )


def test_of_many_hosts_three_are_named_and_the_others_counted():
    lines = [stack_text("r-000001", [snapshot(rank, WAITS) for rank in range(ranks)], lasts=True) for ranks in (16, 20)]
    assert "on algo-1, algo-2, algo-3 and 1 more host" in lines[0].splitlines()[2]
    assert lines[1].splitlines()[2].endswith("algo-3 and 2 more hosts")


def test_only_the_ranks_that_differ():
    assert (
        stack_text("r-000001", SNAPSHOTS, lasts=False, diff=True)
        == f"""\
r-000001  8 ranks at the last snapshot, 2026-11-18T11:06:40Z

most: ranks 0,2-7 at {TRAIN}:31 in step; those that differ:

rank 1: asleep, 0.00 cores, pid 101 on algo-1
  > {TRAIN}:28 in step
  > {TRAIN}:50 in <module>"""
    )


def test_where_no_rank_differs_that_is_said():
    text = stack_text("r-000001", SNAPSHOTS[2:4], lasts=True, diff=True)
    assert text.endswith(f"ranks 2-3 all stand at {TRAIN}:31 in step: no rank differs")


def test_what_a_rank_waits_for_its_loader_and_its_native_frames_stand_with_it():
    worker = Child(pid=7, state="D", name="pt_data_worker", cpu_fraction=0.0, role="loader", stack=SLEEPS[:1])
    silent = Child(pid=8, state="S", name="bash", cpu_fraction=0.0)
    suspect = snapshot(
        3,
        WAITS[:1],
        state="D",
        system_call="read",
        blocked_on="/data/x (nfs4 on /data)",
        children=(worker, silent),
        native=("take_gil (libpython3.11.so)",),
        ping_answers=True,
        traceback_answers=False,
        not_judged=("sockets: unknown",),
    )
    assert (
        stack_text("r-000001", [suspect], lasts=True)
        == f"""\
r-000001  1 rank now

rank 3: held in the kernel, 0.00 cores, in read on /data/x (nfs4 on /data), a thread holds the GIL, pid 103 on algo-1
    take_gil (libpython3.11.so)
    torch/distributed/distributed_c10d.py:2810 in all_reduce
  rank 3, DataLoader worker 7 (held in the kernel, 0.00 cores):
    > {TRAIN}:28 in step

not judged: rank 3: sockets: unknown"""
    )


def test_ranks_without_a_stack_are_not_taken_for_one_place():
    gone = [snapshot(rank, (), state=None, cpu_fraction=None) for rank in range(2)]
    assert [[one.rank for one in group] for group in folded([*gone, *SNAPSHOTS[2:4]])] == [[2, 3], [0], [1]]
    assert "no Python stack" in stack_text("r-000001", gone, lasts=True)


def test_for_a_program_every_thread_is_there():
    facts = stack_facts("r-000001", [replace(SNAPSHOTS[1], not_judged=("x",)), SNAPSHOTS[0]], lasts=True)
    assert facts.groups == ((0,), (1,))
    assert [one["rank"] for one in facts.snapshots] == [0, 1] and facts.ended is False
    assert all("t_ns" in one and "at_ns" not in one for one in facts.snapshots)
    assert facts.not_judged == ("rank 1: x",)


def test_what_goes_on_inside_an_exchange_of_ours_is_one_line_and_ranks_inside_it_stand_together():
    def in_ours(line):
        ours = [
            ("transports/shared_memory/sync.py", line, "_sleep"),
            ("backend/large_exchanges.py", 69, "run"),
            ("backend/process_group.py", 132, "allreduce"),
        ]
        frames = [Frame(file=f"/x/src/paceline/parts/comm/{file}", line=at, function=name) for file, at, name in ours]
        return (*frames, *WAITS)

    snapshots = [snapshot(0, in_ours(177)), snapshot(1, in_ours(159))]
    assert stack_text("r-000001", snapshots, lasts=True).splitlines()[2:5] == [
        "ranks 0-1: asleep, 0.00 cores, on algo-1",
        "    paceline/parts/comm/backend/process_group.py:132 in allreduce",
        "    torch/distributed/distributed_c10d.py:2810 in all_reduce",
    ]
    assert place_of(snapshots[0]) == f"at {TRAIN}:31 in step, in allreduce (backend/process_group.py:132)"
    assert is_waiting_in_collective(snapshots[0]) is True
