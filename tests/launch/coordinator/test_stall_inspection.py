"""When a stall is looked at again, what of it is news, and what it takes until it counts as a hang."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Heartbeat, Level, Proof, Stall
from paceline.diagnosis.hang.wait_graph import START
from paceline.diagnosis.snapshots import Frame, RankSnapshot, ThreadStack
from paceline.launch.coordinator.stall_inspection import StallTracker

SECOND = 1_000_000_000
FOUND = Stall(
    level=Level.STALL,
    since_ns=0,
    detected_ns=3,
    threshold_seconds=3.0,
    late=(1,),
    waiting=(0, 2),
    basis="flight recorder",
)
UNKNOWN = replace(FOUND, late=(), waiting=(), basis="steps")
OWN = (Frame(file="/home/me/train.py", line=14, function="main", users=True),)
BACKWARD = (Frame(file="/venv/torch/autograd/graph.py", line=841, function="_engine_run_backward"), *OWN)


def snapshot(rank, at=0.0, frames=OWN, **fields):
    stack = ThreadStack(pid=100 + rank, thread="MainThread", main=True, frames=frames)
    known = {
        "host": "a",
        "pid": 100 + rank,
        "at_ns": int((100 + at) * SECOND),
        "state": "S",
        "cpu_fraction": 0.0,
        "stacks": (stack,),
    }
    moved = {"read_bytes_per_second": 0.0, "written_bytes_per_second": 0.0, "cpu_seconds": 50.0, "moved_bytes": 4096}
    return RankSnapshot(**{"rank": rank, **known, **moved, **fields})


def idle(at=0.0):
    return snapshot(1, at), snapshot(0, at, BACKWARD)


def busy(at=0.0):
    return snapshot(1, at, state="R", cpu_fraction=1.0, stack_moved=True, cpu_seconds=50.0 + at), snapshot(
        0, at, BACKWARD
    )


def played(found, *rounds, every=10.0):
    """A stall and what became of it: each round is a function of the time at which it looks."""
    it = StallTracker(found, found.late)
    return it, [it.looked(found, made(every * number), every * number) for number, made in enumerate(rounds)]


def confirmed(it, ranks=(0, 1, 2), **more):
    return it.confirmation(ranks, **more)


def test_two_snapshots_in_which_nothing_moves_confirm_a_hang():
    it, news = played(FOUND, idle)
    assert news == [True] and confirmed(it) is None
    it, news = played(FOUND, idle, idle)
    found = confirmed(it)
    assert news == [True, False] and (found.proof, found.ranks, found.looks) == (Proof.WAITED_FOR, (1,), 2)
    assert found.reason.startswith(
        "rank 1 has stood still while ranks 0,2 wait for it; rank 1 is at /home/me/train.py:14"
    )


def test_one_idle_snapshot_of_a_rank_that_got_on_does_not_count():
    it, news = played(FOUND, busy, idle)
    assert news == [True, None] and it.now.level is Level.WAITING
    assert it.is_due(FOUND, 10 + 1.5) and not it.is_due(FOUND, 10 + 1.0)
    it, news = played(FOUND, busy, idle, busy, idle)
    assert news == [True, None, False, None] and it.now.level is Level.WAITING


def test_a_second_idle_snapshot_does():
    it, news = played(FOUND, busy, idle, idle)
    assert news == [True, None, True] and it.now.level is Level.STALL and confirmed(it)


def test_a_rank_whose_counters_move_is_only_waited_for_however_little_it_does():
    moves = replace(FOUND, level=Level.WAITING, progress=("its counters move",))
    it, _ = played(moves, *[idle] * 5)
    assert it.now.level is Level.WAITING and confirmed(it) is None


def test_snapshots_of_an_earlier_stall_prove_nothing_of_the_next():
    it, _ = played(FOUND, idle)
    it.looked(replace(FOUND, since_ns=9 * SECOND), idle(10.0), 10.0)
    assert confirmed(it) is None


def test_a_flush_to_a_file_system_is_given_a_minute():
    def flushes(at):
        return snapshot(1, at, system_call="fsync", blocked_on="/mnt/model.pt"), snapshot(0, at, BACKWARD)

    it, _ = played(FOUND, *[flushes] * 6)
    assert it.now.level is Level.STALL and confirmed(it) is None
    it, _ = played(FOUND, *[flushes] * 7)
    assert confirmed(it).ranks == (1,)


def test_a_late_rank_that_has_ended_needs_no_snapshot():
    it, _ = played(FOUND, *[lambda at: [snapshot(0, at, BACKWARD)]] * 3)
    it.now = replace(it.now, level=Level.STALL)
    assert confirmed(it, ended=(1,)).seen == ("rank 1 has ended",)


def test_of_many_late_ranks_sixteen_are_looked_at_and_the_heartbeats_of_the_others_count():
    many = replace(FOUND, late=tuple(range(1, 41)), waiting=(0,))
    it = StallTracker(many, many.late)
    for at in (0.0, 15.0):
        chosen = it.suspects(many, heartbeats(41))
        assert chosen == [*range(1, 17), 0]
        it.looked(many, [snapshot(rank, at, BACKWARD if rank == 0 else OWN) for rank in chosen], at)
    ranks = range(41)
    assert confirmed(it, ranks) is None
    assert confirmed(it, ranks, idle_since_ns=lambda rank: 100 * SECOND).ranks == tuple(range(1, 17))
    assert confirmed(it, ranks, idle_since_ns=lambda rank: (112 if rank == 40 else 100) * SECOND) is None


def test_ranks_in_a_circle_are_confirmed_by_two_snapshots_of_each():
    receives = (Frame(file="/venv/torch/distributed/distributed_c10d.py", line=2799, function="recv"), *OWN)

    def both(at):
        return snapshot(0, at, receives), snapshot(1, at, receives)

    crossed = replace(FOUND, late=(), waiting=(0, 1), crossed=(0, 1))
    it, _ = played(crossed, both, both)
    assert (confirmed(it, (0, 1)).proof, confirmed(it, (0, 1)).ranks) == (Proof.CROSSWISE, (0, 1))
    it, _ = played(replace(crossed, crossed=()), both, both)
    assert confirmed(it, (0, 1)) is None


def all_in_one_exchange(at, **fields):
    return [snapshot(rank, at, BACKWARD, **fields) for rank in (0, 1)]


ALL_HERE = replace(FOUND, late=(), waiting=(0, 1))


def test_ranks_that_have_all_come_are_a_stall_only_where_two_snapshots_saw_them_rest():
    _, news = played(ALL_HERE, all_in_one_exchange, all_in_one_exchange, every=1.3)
    assert news == [None, True]

    def gets_some_cpu(at):
        return all_in_one_exchange(at, cpu_seconds=50 + 0.1 * at)

    it, news = played(ALL_HERE, *[gets_some_cpu] * 3, every=1.3)
    assert news == [None] * 3 and not it.is_said


@pytest.mark.parametrize(("basis", "seconds"), [("flight recorder", 1.3), ("stacks", 1.3), (START, 0.0)])
def test_the_second_snapshot_of_ranks_that_have_all_come_is_due_at_once_at_the_rendezvous_alone(basis, seconds):
    it, news = played(replace(ALL_HERE, basis=basis), all_in_one_exchange)
    assert news == [None] and it.next_snapshot_at == seconds


def test_ranks_that_have_all_come_and_never_rest_all_at_once_are_told_after_a_while():
    def one_polls(at):
        return snapshot(0, at, BACKWARD, cpu_seconds=50 + 0.1 * at), snapshot(1, at, BACKWARD)

    _, news = played(ALL_HERE, *[one_polls] * 5, every=1.3)
    assert news == [None, None, None, True, False]


def test_a_full_machine_whose_gloo_threads_stand_in_line_raises_no_alarm():
    def in_line(at):
        return all_in_one_exchange(at, thread_states={"S": 15, "R": 1})

    it, news = played(ALL_HERE, in_line, in_line, every=1.3)
    assert it.now.level is Level.WAITING and True in news


def test_a_rank_that_computes_beside_an_exchange_it_began_waits_for_nobody():
    def seen(at):
        works = snapshot(0, at, state="R", cpu_fraction=1.0, cpu_seconds=50 + at, stack_moved=True)
        return snapshot(1, at), works

    it, _ = played(replace(FOUND, waiting=(0,)), *[seen] * 9)
    assert confirmed(it, (0, 1)) is None


def test_snapshots_become_rarer_and_another_late_rank_is_looked_at_at_once():
    it, _ = played(FOUND, idle)
    assert not it.is_due(FOUND, 1.9) and it.is_due(FOUND, 2.0)
    it, _ = played(FOUND, *[idle] * 9)
    assert not it.is_due(FOUND, 80 + 29) and it.is_due(FOUND, 80 + 30)
    assert it.is_due(replace(FOUND, late=(2,), waiting=(0,)), 81)


def heartbeats(count, **fields):
    return {rank: Heartbeat(host="a", rank=rank, at_ns=0, moved_ns=0, state="S", **fields) for rank in range(count)}


def test_the_late_and_one_that_waits_are_looked_at_in_turn():
    it = StallTracker(FOUND, FOUND.late)
    assert it.suspects(FOUND, heartbeats(3)) == [1, 0]
    it.looked(FOUND, idle(), 0.0)
    assert it.suspects(FOUND, heartbeats(3)) == [1, 2]


def test_where_nobody_is_late_everybody_is_looked_at():
    assert StallTracker(UNKNOWN, ()).suspects(UNKNOWN, heartbeats(3)) == [0, 1, 2]


def test_of_a_large_job_one_of_each_state_and_the_others_in_turn():
    ranks = heartbeats(40) | {33: Heartbeat(host="a", rank=33, at_ns=0, moved_ns=0, state="D")}
    it = StallTracker(UNKNOWN, ())
    first = it.suspects(UNKNOWN, ranks)
    assert len(first) == 16 and 33 in first
    it.looked(UNKNOWN, [snapshot(rank, 0, BACKWARD) for rank in first], 0.0)
    assert not set(first) & set(it.suspects(replace(UNKNOWN, waiting=()), ranks)[:16])


def test_a_host_too_busy_to_look_raises_no_alarm():
    it, news = played(FOUND, *[lambda at: ()] * 3)
    assert news == [None, None, True]
    assert it.now.level is Level.WAITING and confirmed(it) is None
    assert it.now.progress == ("not judged: no snapshot of them arrived in time",)


def test_a_snapshot_of_the_others_alone_confirms_nothing():
    it, _ = played(FOUND, *[lambda at: [snapshot(0, at, BACKWARD)]] * 9)
    assert confirmed(it) is None


def test_without_any_snapshot_nothing_is_confirmed_however_long_it_lasts():
    it, _ = played(UNKNOWN, *[lambda at: ()] * 20)
    assert it.now.level is Level.WAITING and confirmed(it) is None


# ------------------------------------------------------------------------------------------- without a flight recorder


def backward_and_asleep(at):
    return snapshot(0, at, BACKWARD), snapshot(1, at)


def test_stacks_and_idle_cpus_name_the_sleeper_where_no_counter_does():
    it, news = played(UNKNOWN, backward_and_asleep, backward_and_asleep, every=2.0)
    found = confirmed(it, (0, 1))
    assert news == [True, False]
    assert (found.proof, found.ranks, found.waiting) == (Proof.WAITED_FOR, (1,), (0,))


def test_a_rank_in_backward_and_one_in_a_call_of_its_own_wait_for_each_other():
    def seen(at):
        return snapshot(0, at, BACKWARD), snapshot(1, at)

    it, _ = played(replace(FOUND, late=(0,), waiting=(1,), basis="calls"), seen, seen, every=2.0)
    found = confirmed(it, (0, 1))
    assert (it.now.late, it.now.waiting, found.proof) == ((), (0, 1), Proof.CROSSWISE)
    assert found.reason.startswith("rank 0 waits in a different call than the ranks that wait for it; ")


def test_of_three_ranks_two_wait_in_backward():
    def seen(at):
        return *backward_and_asleep(at), snapshot(2, at, BACKWARD)

    it, _ = played(UNKNOWN, seen, seen, every=2.0)
    assert (it.now.late, it.now.waiting) == ((1,), (0, 2)) and confirmed(it).ranks == (1,)


def test_a_backward_pass_that_gets_little_cpu_is_not_held_to_wait():
    def seen(at):
        return snapshot(0, at, BACKWARD, cpu_seconds=50 + 0.15 * at), snapshot(1, at)

    it, _ = played(UNKNOWN, *[seen] * 9)
    assert confirmed(it, (0, 1)) is None


def all_evaluate(at):
    return [
        snapshot(rank, at, cpu_fraction=0.0 if at == 10 else 0.2, cpu_seconds=50 + 0.2 * at, stack_moved=True)
        for rank in (0, 1)
    ]


def all_starve(at):
    return [snapshot(rank, at, state="R", cpu_fraction=0.0) for rank in (0, 1)]


def all_pause(at):
    return [snapshot(rank, at) for rank in (0, 1)]


@pytest.mark.parametrize("healthy", [all_evaluate, all_starve])
def test_ranks_that_all_compute_are_never_held_to_hang_also_where_the_machine_is_full(healthy):
    it, news = played(UNKNOWN, *[healthy] * 20)
    assert news[:3] == [None, None, None] and it.now.level is Level.WAITING
    assert confirmed(it, (0, 1)) is None


def test_a_pause_of_every_rank_is_no_hang_before_a_minute_of_it_was_seen():
    it, news = played(UNKNOWN, *[all_pause] * 6)
    assert news[:3] == [None, None, None] and confirmed(it, (0, 1)) is None and it.now.level is Level.WAITING
    it, _ = played(UNKNOWN, *[all_pause] * 7)
    found = confirmed(it, (0, 1))
    assert (found.proof, found.ranks) == (Proof.NOBODY_MOVES, (0, 1)) and it.now.level is Level.STALL
    assert "ranks 0-1 have used no CPU and moved no data for 60 s" in found.reason


def test_one_rank_that_nobody_looked_at_is_enough_to_wait():
    it, _ = played(UNKNOWN, *[all_pause] * 20)
    assert confirmed(it, (0, 1, 2)) is None


def test_a_rank_that_gets_some_cpu_between_two_snapshots_is_not_still():
    def seen(at):
        return snapshot(1, at, cpu_seconds=50 + 0.2 * at), snapshot(0, at, BACKWARD)

    it, _ = played(FOUND, *[seen] * 9)
    assert confirmed(it) is None


def test_what_its_heartbeats_say_counts_too():
    it, _ = played(FOUND, idle, idle)
    assert confirmed(it, idle_since_ns=lambda rank: 99 * SECOND)
    assert confirmed(it, idle_since_ns=lambda rank: 109 * SECOND + SECOND // 2) is None
