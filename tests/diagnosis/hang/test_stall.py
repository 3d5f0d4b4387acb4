"""Who holds up whom, from made-up heartbeats: a job is described second by second, and the detector is asked each time."""

import time
from dataclasses import replace

import pytest

from paceline.diagnosis.case import Call, GroupCounters, Heartbeat, Level
from paceline.diagnosis.hang.stall import StallDetector

SECOND = 1_000_000_000
NOW = 1_795_000_000 * SECOND


def stood(rank, seconds=4.0, *, groups=None, **fields):
    """A rank that has not moved for `seconds`, in the middle of training; `groups`: name -> (entered, over), of everybody unless told."""
    counters = None if groups is None else tuple(counted(name, *given) for name, given in groups.items())
    known = {"host": "algo-1", "at_ns": NOW, "moved_ns": NOW - int(seconds * SECOND), "pid": 100 + rank, "state": "S"}
    more = {"phase": "training", "step_count": 12, "step_seconds": 0.02, "groups": counters}
    return Heartbeat(**{"rank": rank, **known, **more, **fields})


def counted(name, entered, over, ranks=None):
    return GroupCounters(name=name, enqueued=entered, completed=over, ranks=ranks)


def in_backward(rank, seconds=4.0, index=13, **fields):
    return stood(rank, seconds, groups={"0": (index, index - 1)}, **fields)


def elsewhere(rank, seconds=4.0, index=12, **fields):
    return stood(rank, seconds, groups={"0": (index, index)}, **fields)


def later(heartbeat, seconds, *, moved=False):
    at_ns = heartbeat.at_ns + int(seconds * SECOND)
    return replace(heartbeat, at_ns=at_ns, moved_ns=at_ns if moved else heartbeat.moved_ns)


def observe(*heartbeats, world_size=None, detector=None):
    detector = detector or StallDetector(world_size)
    return detector.observe(
        {heartbeat.rank: heartbeat for heartbeat in heartbeats}, max(heartbeat.at_ns for heartbeat in heartbeats)
    )


# ----------------------------------------------------------------------------------------------------------- who is late


def test_one_rank_waits_in_backward_for_the_other():
    found = observe(in_backward(0, 5.0), elsewhere(1, 6.0))
    assert (found.waiting, found.late) == ((0,), (1,))
    assert (found.basis, found.group, found.index) == ("flight recorder", "0", 13)
    assert found.since_ns == NOW - 5 * SECOND
    assert found.since_step == 12
    assert found.threshold_seconds == 3.0
    assert found.level is Level.STALL


def test_nothing_is_said_before_the_threshold():
    assert observe(in_backward(0, 2.9), elsewhere(1, 2.9)) is None


def test_the_threshold_is_five_steps_of_a_slow_job():
    slow = {"step_seconds": 10.0}
    assert observe(in_backward(0, 49.0, **slow), elsewhere(1, 49.0, **slow)) is None
    assert observe(in_backward(0, 51.0, **slow), elsewhere(1, 51.0, **slow)).threshold_seconds == 50.0


def test_one_long_step_does_not_make_the_detector_patient():
    detector = StallDetector(2)
    for step in range(9):
        pace = 20.0 if step == 8 else 0.02
        healthy = [elsewhere(rank, 0.0, step_count=step, step_seconds=pace) for rank in (0, 1)]
        assert observe(*healthy, detector=detector) is None
    assert detector.threshold_seconds() == 3.0


def test_the_first_step_is_no_measure_of_the_others():
    detector = StallDetector(2)
    first = [elsewhere(rank, 0.0, step_count=1, step_seconds=4.0) for rank in (0, 1)]
    assert observe(*first, detector=detector) is None
    assert detector.threshold_seconds() == 9.0
    assert (
        observe(*(replace(heartbeat, step_count=12, step_seconds=0.02) for heartbeat in first), detector=detector)
        is None
    )
    assert detector.threshold_seconds() == 3.0


def test_a_stopped_rank_that_does_not_answer_is_the_late_one():
    found = observe(in_backward(0), stood(1, state="T"))
    assert (found.late, found.basis) == ((1,), "flight recorder")


def test_a_stopped_rank_is_late_beside_one_that_sleeps():
    found = observe(in_backward(0), elsewhere(1), stood(2, state="T", groups=None), in_backward(3))
    assert (found.waiting, found.late) == ((0, 3), (1, 2))


def test_of_ranks_that_did_not_answer_those_that_show_a_wait_are_not_late():
    heartbeats = [in_backward(0), stood(1, phase="communication"), stood(2, state="D")]
    assert observe(*heartbeats).late == (2,)


def test_a_rank_that_never_called_in_the_group_is_late():
    assert observe(in_backward(0, index=1), stood(1, groups={})).late == (1,)


def test_calls_decide_where_the_flight_recorder_shows_nothing():
    waits = stood(
        0, phase="communication", calls={"0": 8}, group_ranks={"0": (0, 1)}, last_call=call("monitored_barrier")
    )
    found = observe(waits, stood(1, calls={"0": 7}, group_ranks={"0": (0, 1)}))
    assert (found.late, found.basis, found.index, found.operation) == ((1,), "calls", 8, "monitored_barrier")


def test_a_rank_without_a_single_call_is_late_by_calls():
    waits = stood(0, phase="communication", calls={"0": 1}, group_ranks={"0": (0, 1)})
    assert observe(waits, stood(1)).late == (1,)


def test_the_phase_decides_where_there_are_no_counters():
    found = observe(stood(0, phase="communication"), stood(1, phase="data"))
    assert (found.waiting, found.late, found.basis) == ((0,), (1,), "phase")


def test_nobody_can_tell_who_is_late_when_all_look_alike():
    found = observe(stood(0), stood(1))
    assert (found.waiting, found.late) == ((), ())


def test_nobody_is_late_where_every_one_is_known_to_be_in_no_collective():
    found = observe(elsewhere(0, 37.0), elsewhere(1, 35.0))
    assert (found.waiting, found.late, found.basis) == ((), (), "steps")
    assert found.since_ns == NOW - 35 * SECOND


def computing(seconds, now_seconds, cpu_seconds):
    heartbeats = [stood(rank, seconds, cpu_seconds=cpu) for rank, cpu in enumerate(cpu_seconds)]
    return [
        replace(later(heartbeat, now_seconds), moved_ns=later(heartbeat, now_seconds).at_ns - int(seconds * SECOND))
        for heartbeat in heartbeats
    ]


def test_ranks_that_all_compute_are_let_be_for_half_a_minute():
    detector = StallDetector(2)
    observe(*computing(6.0, 0, (10.0, 10.0)), detector=detector)
    for turn in range(1, 20):
        assert observe(*computing(6.0 + turn, turn, (10.0 + turn, 10.0 + 0.2 * turn)), detector=detector) is None
    assert observe(*computing(31.0, 20, (30.0, 14.0)), detector=detector)


def test_one_rank_that_computes_does_not_hide_another_that_does_not():
    detector = StallDetector(2)
    for turn in range(5):
        found = observe(*computing(4.0 + turn, turn, (10.0 + turn, 10.0)), detector=detector)
    assert (found.waiting, found.late) == ((), ())


def test_all_ranks_stopped_are_no_pause():
    assert observe(elsewhere(0, state="T"), elsewhere(1, state="T")).late == (0, 1)


def test_all_wait_and_nobody_is_missing():
    found = observe(in_backward(0), in_backward(1))
    assert (found.waiting, found.late) == ((0, 1), ())


def test_a_rank_that_ended_while_others_wait_is_late():
    assert observe(in_backward(0), elsewhere(1, 1.0, exit_code=0)).late == (1,)


def test_a_rank_that_leaves_while_others_wait_is_late():
    assert observe(in_backward(0), stood(1, 0.5, exiting=True, phase="exiting")).late == (1,)


def test_a_rank_whose_exit_handlers_run_while_others_wait_is_late():
    assert observe(in_backward(0), stood(1, 0.5, finalizing_ns=NOW)).late == (1,)


def test_a_rank_that_waits_in_an_exit_handler_is_one_of_those_that_wait():
    found = observe(in_backward(0, finalizing_ns=NOW), elsewhere(1))
    assert (found.waiting, found.late) == ((0,), (1,))


def test_nobody_waits_for_a_rank_that_leaves_while_another_is_at_work_of_its_own():
    assert observe(elsewhere(0, 60.0, phase="checkpoint"), stood(1, 60.0, finalizing_ns=NOW)).late != (1,)


def test_a_rank_that_was_never_heard_of_is_late_where_nobody_else_is():
    assert observe(in_backward(0), world_size=2).late == (1,)
    assert observe(in_backward(0), elsewhere(1), world_size=3).late == (1,)


def test_an_asynchronous_collective_ahead_of_the_others_makes_nobody_late_that_has_entered_it():
    ahead = stood(0, groups={"0": (15, 12)})
    assert observe(ahead, stood(1, groups={"0": (13, 12)}), stood(2, groups={"0": (12, 12)})).late == (2,)


# ---------------------------------------------------------------------------------------------------------- several groups


def test_ranks_of_different_subgroups_are_not_compared():
    heartbeats = [
        stood(0, groups={"1": (9, 8, (0, 1))}),
        stood(1, groups={"1": (8, 8, (0, 1))}),
        stood(2, 0.5, groups={"2": (3, 3, (2, 3))}),
        stood(3, 0.5, groups={"2": (3, 3, (2, 3))}),
    ]
    found = observe(*heartbeats)
    assert (found.waiting, found.late, found.group) == ((0,), (1,), "1")


def test_groups_of_one_name_and_different_members_are_two_groups():
    heartbeats = [
        stood(0, groups={"1": (20, 20, (0, 1))}),
        stood(1, groups={"1": (20, 20, (0, 1))}),
        stood(2, groups={"1": (9, 8, (2, 3))}),
        stood(3, groups={"1": (8, 8, (2, 3))}),
    ]
    assert observe(*heartbeats).late == (3,)


def test_the_members_of_a_group_may_be_known_from_its_calls_alone():
    heartbeats = [stood(rank, groups={"1": (9 - rank, 8)}, group_ranks={"1": (0, 1)}) for rank in (0, 1)]
    assert observe(*heartbeats, stood(2, 0.2, groups={"1": (1, 1)})).late == (1,)


def test_the_rank_at_the_end_of_a_chain_is_late():
    heartbeats = [
        stood(0, groups={"0": (13, 12), "1": (4, 4, (1, 2))}),
        stood(1, groups={"0": (12, 12), "1": (5, 4, (1, 2))}),
        stood(2, groups={"0": (12, 12), "1": (4, 4, (1, 2))}),
    ]
    found = observe(*heartbeats)
    assert (found.waiting, found.late) == ((0, 1), (2,))


def test_ranks_that_wait_for_each_other_in_a_circle_accuse_nobody():
    heartbeats = [
        stood(0, groups={"0": (13, 12), "1": (4, 4, (0, 1))}),
        stood(1, groups={"0": (12, 12), "1": (5, 4, (0, 1))}),
    ]
    found = observe(*heartbeats)
    assert (found.waiting, found.late, found.crossed) == ((0, 1), (), (0, 1))


def peer_call(operation, peer):
    return Call(index=0, operation=operation, issued_ns=NOW - 4 * SECOND, root=peer)


@pytest.mark.parametrize("calls", [{}, {"0": 20}])
def test_two_ranks_that_each_receive_from_the_other_wait_crosswise(calls):
    heartbeats = [
        stood(rank, phase="communication", calls=calls, last_call=peer_call("recv", 1 - rank)) for rank in (0, 1)
    ]
    found = observe(*heartbeats)
    assert (found.waiting, found.late, found.crossed) == ((0, 1), (), (0, 1))


def test_a_third_rank_that_waits_for_them_has_no_part_in_their_circle():
    circle = [stood(rank, phase="communication", last_call=peer_call("recv", 1 - rank)) for rank in (0, 1)]
    third = stood(2, phase="communication", last_call=peer_call("recv", 0))
    assert observe(*circle, third).crossed == (0, 1)


def test_a_barrier_of_one_rank_and_an_all_reduce_of_the_other_wait_crosswise():
    heartbeats = [
        stood(rank, phase="communication", calls={"0": 8}, last_call=call(operation))
        for rank, operation in enumerate(("barrier", "all_reduce"))
    ]
    assert observe(*heartbeats).crossed == (0, 1)


def test_ranks_that_wait_in_the_same_call_are_not_crossed():
    heartbeats = [stood(rank, phase="communication", calls={"0": 8}, last_call=call("all_reduce")) for rank in (0, 1)]
    found = observe(*heartbeats)
    assert (found.waiting, found.late, found.crossed) == ((0, 1), (), ())


def test_a_rank_that_receives_what_is_never_sent_waits_for_the_one_outside():
    receives = stood(0, phase="communication", last_call=peer_call("recv", 1))
    found = observe(receives, stood(1))
    assert (found.waiting, found.late, found.basis) == ((0,), (1,), "phase")


def test_a_pipeline_in_which_one_stage_moves_is_left_alone():
    receiving = [stood(rank, 20.0, phase="communication", groups={"0": (2, 2)}) for rank in (1, 2, 3)]
    assert observe(stood(0, 0.2, groups={"0": (2, 2)}), *receiving) is None


def test_the_stage_of_a_pipeline_that_stands_outside_of_a_receive_is_late():
    receiving = [stood(rank, phase="communication", groups={"0": (2, 2)}) for rank in (0, 2, 3)]
    assert observe(stood(1, groups={"0": (2, 2)}), *receiving).late == (1,)


def test_a_stage_that_has_just_come_to_its_own_wait_is_not_late():
    stages = [stood(0, 2.0, phase="communication"), stood(1, 5.0), stood(2, 5.0, phase="communication")]
    found = observe(*stages)
    assert (found.waiting, found.late) == ((0, 2), (1,))


def test_a_late_rank_that_has_come_to_a_wait_of_its_own_is_not_blamed():
    waits, receives = in_backward(0), elsewhere(2, 2.0, index=11, phase="communication")
    assert observe(waits, elsewhere(1), receives).late == (1,)


# ------------------------------------------------------------------------------------------------------------- no alarm


def test_nothing_is_said_of_processes_that_have_shown_no_ring():
    assert observe(stood(0, 60.0, phase=None), stood(1, 60.0, phase=None)) is None


def test_nothing_is_said_of_ranks_that_leave():
    assert observe(stood(0, 60.0, exiting=True), stood(1, 60.0, exiting=True)) is None
    assert observe(elsewhere(0, exit_code=0), elsewhere(1, exit_code=0)) is None


def test_nothing_is_said_while_nobody_waits_and_one_moves():
    assert observe(elsewhere(0, 60.0), elsewhere(1, 0.5)) is None


def test_nothing_is_said_of_nothing():
    assert StallDetector(2).observe({}, NOW) is None


def test_an_old_heartbeat_says_nothing():
    old = replace(in_backward(0), at_ns=NOW - 60 * SECOND, moved_ns=NOW - 90 * SECOND)
    assert observe(old, elsewhere(1, 0.5)) is None


# ---------------------------------------------------------------------------------------------------------------- start


def starting(rank, seconds, **fields):
    return stood(rank, seconds, step_count=0, step_seconds=None, **{"phase": "rendezvous", **fields})


def test_ranks_at_the_rendezvous_wait_for_those_that_have_not_come():
    found = observe(starting(0, 6.0), starting(2, 5.5), starting(1, 9.0, phase=None), world_size=4)
    assert (found.waiting, found.late, found.basis) == ((0, 2), (1, 3), "start")
    assert found.threshold_seconds == 5.0


def test_the_rendezvous_is_given_five_seconds():
    assert observe(starting(0, 4.9), world_size=2) is None


def test_all_at_the_rendezvous_and_none_goes_on():
    found = observe(starting(0, 6.0), starting(1, 6.0), world_size=2)
    assert (found.waiting, found.late, found.basis) == ((0, 1), (), "start")


def test_a_first_collective_is_waited_for_five_seconds_too():
    def first(seconds):
        waits = starting(0, seconds, phase="starting", groups={"0": (1, 0)})
        return observe(waits, starting(1, seconds, phase="starting", groups={}), world_size=2)

    assert first(4.0) is None
    assert first(5.1).late == (1,)


def test_a_long_compile_on_all_ranks_is_let_be_for_half_a_minute():
    detector = StallDetector(2)

    def all_alone(seconds):
        ranks = [starting(rank, 0.0, phase="starting", groups={}, cpu_seconds=seconds) for rank in (0, 1)]
        return observe(*(later(heartbeat, seconds) for heartbeat in ranks), detector=detector)

    assert not any(all_alone(float(second)) for second in range(30))
    assert all_alone(31.0)


# ------------------------------------------------------------------------------------------------------------ over time


def test_a_stall_keeps_its_beginning_while_it_lasts():
    detector = StallDetector(2)
    first = observe(in_backward(0), elsewhere(1), detector=detector)
    again = observe(later(in_backward(0), 9), later(elsewhere(1), 9), detector=detector)
    assert (again.since_ns, again.detected_ns, again.late) == (first.since_ns, first.detected_ns, (1,))


def test_it_ends_when_the_job_moves():
    detector = StallDetector(2)
    assert observe(in_backward(0), elsewhere(1), detector=detector)
    assert observe(later(in_backward(0), 1, moved=True), later(elsewhere(1), 1, moved=True), detector=detector) is None
    assert detector.observe({}, NOW) is None


def test_a_second_one_has_a_beginning_of_its_own():
    detector = StallDetector(2)
    first = observe(in_backward(0), elsewhere(1), detector=detector)
    moved = in_backward(0, 0.0, index=20), elsewhere(1, 0.0, index=19)
    second = observe(*(later(replace(p, moved_ns=NOW + SECOND), 9) for p in moved), detector=detector)
    assert second.since_ns == NOW + SECOND > first.since_ns


def test_a_flight_recorder_that_does_not_answer_once_changes_nothing():
    detector = StallDetector(2)
    assert observe(in_backward(0), elsewhere(1), detector=detector).late == (1,)
    found = observe(later(stood(0), 1), later(stood(1), 1), detector=detector)
    assert (found.late, found.waiting, found.basis) == ((1,), (0,), "flight recorder")


def test_a_rank_that_moves_on_and_is_still_late_is_only_waited_for():
    found = observe(in_backward(0, 10.0), elsewhere(1, 0.3))
    assert (found.level, found.late, found.progress) == (Level.WAITING, (1,), ("its counters move",))


def test_a_rank_that_leaves_does_not_move_on():
    found = observe(in_backward(0), stood(1, 0.2, exiting=True, phase="exiting"))
    assert (found.level, found.progress) == (Level.STALL, ())


def test_a_new_attempt_starts_afresh():
    detector = StallDetector(2)
    assert observe(in_backward(0), elsewhere(1), detector=detector)
    young = [starting(rank, 1.0, phase="starting", attempt=1) for rank in (0, 1)]
    assert observe(*young, detector=detector) is None
    assert detector.threshold_seconds() == 5.0


def test_heartbeats_of_the_attempt_before_are_passed_over():
    found = observe(in_backward(0, attempt=1), elsewhere(1, attempt=1), in_backward(2, 90.0, attempt=0))
    assert (found.waiting, found.late, found.attempt) == ((0,), (1,), 1)


@pytest.mark.parametrize("subgroups", [1, 64])
def test_what_a_comparison_costs_grows_as_the_number_of_ranks(subgroups):
    compared_in(512, subgroups)
    assert compared_in(4096, subgroups) < 8 * 4 * compared_in(512, subgroups)


def compared_in(ranks, subgroups):
    """CPU seconds of one comparison, of which one rank is late; the least of three."""
    members = [tuple(range(first, ranks, subgroups)) for first in range(subgroups)]
    heartbeats = {
        rank: stood(
            rank,
            groups={"0": (13 - (rank == 77), 12), "1": (40, 40, members[rank % subgroups])},
            group_ranks={"0": tuple(range(ranks))} if subgroups == 1 else {},
        )
        for rank in range(ranks)
    }
    detector, took = StallDetector(ranks), []
    for _ in range(3):
        start = time.process_time()
        found = detector.observe(heartbeats, NOW)
        took.append(time.process_time() - start)
    assert found.late == (77,)
    assert len(found.waiting) == ranks - 1
    return min(took)


def call(operation):
    return Call(index=8, operation=operation, issued_ns=NOW - 4 * SECOND)
