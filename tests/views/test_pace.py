"""Where the time of ranks goes."""

import pytest

from paceline.diagnosis.time_breakdown import time_spent
from paceline.facts import RankExit, RankRecord
from paceline.views.pace import pace

SECOND = 1_000_000_000


def rank(number, *, steps=100, step=10.0, data=1.0, communication=2.0, checkpoint=0.5, **fields):
    return RankRecord(
        host=fields.pop("host", "algo-1"),
        rank=number,
        attempt=fields.pop("attempt", 0),
        pid=fields.pop("pid", 100 + number),
        step_count=steps,
        step_seconds=step,
        data_seconds=data,
        communication_seconds=communication,
        checkpoint_seconds=checkpoint,
        **fields,
    )


def test_the_whole_life_is_looked_at_where_there_was_no_look_before():
    now = pace([rank(0), rank(1, steps=99, step=9.9)], ranks_wanted=2)
    assert (now.step, now.ranks_here, now.ranks_wanted) == (99, 2, 2)
    assert now.step_seconds == pytest.approx(0.1)
    assert now.exposed_communication_fraction == pytest.approx((0.2 + 2 / 9.9) / 2)


def test_a_script_may_start_more_ranks_than_the_launcher():
    assert pace([rank(n, world_size=4) for n in range(4)], ranks_wanted=1).ranks_wanted == 4


def test_between_two_looks_only_the_difference_counts():
    before = [rank(0)]
    now = pace([rank(0, steps=110, step=15.0, data=1.0, communication=2.0, checkpoint=3.0)], before)
    assert now.step_seconds == pytest.approx(0.5)
    assert now.loading_fraction == 0.0
    assert now.checkpoint_fraction == pytest.approx(0.5)


def test_a_look_without_a_new_step_has_no_step_time():
    assert pace([rank(0)], [rank(0)]).step_seconds is None
    assert pace([rank(0)], [rank(0)]).step == 100


@pytest.mark.parametrize(
    ("batches", "speed"),
    [
        (100, 640.0),  # one batch a step, 32 samples, two ranks, 10 steps a second
        (101, 640.0),  # the next batch is here already
        (400, 2560.0),  # four batches to a step
        (130, None),  # an evaluation has read batches as well
        (20, None),  # several steps to a batch
        (None, None),
    ],
)
def test_samples_are_known_where_batches_are_those_of_steps(batches, speed):
    assert pace([rank(n, batch_size=32, batches_taken=batches) for n in range(2)]).samples_per_second == speed


def test_samples_are_not_known_where_one_rank_says_none():
    assert pace([rank(0, batch_size=32, batches_taken=100), rank(1)]).samples_per_second is None
    assert pace([rank(0, batch_size=32, batches_taken=100)] * 2, ()).samples_per_second == 640.0


def test_a_restarted_rank_is_not_compared_with_the_process_before_it():
    now = pace([rank(0, steps=10, step=1.0, attempt=1, pid=7)], [rank(0)])
    assert now.step_seconds == pytest.approx(0.1)


def test_the_slowest_rank_is_the_one_that_others_wait_for():
    now = pace([rank(0, communication=5.0), rank(1, communication=5.0), rank(2, communication=1.0)])
    assert now.slowest is not None and now.slowest.rank == 2
    assert now.spread == pytest.approx(9 / 5)


def test_a_few_steps_make_nobody_the_slowest():
    ranks = [rank(n, steps=1, step=1.0 + n, communication=0.1, data=0.0, checkpoint=0.0) for n in range(2)]
    assert (pace(ranks).slowest, pace(ranks).spread) == (None, None)


def test_one_rank_alone_has_no_spread():
    assert pace([rank(0)]).spread is None


def test_ranks_that_ended_are_not_here():
    gone = rank(1, exit=RankExit(host="algo-1", rank=1, attempt=0, code=0, time_ns=1))
    assert pace([rank(0), gone]).ranks_here == 1
    assert pace([rank(0), gone], ended=True).ranks_here is None


def test_what_a_rank_never_said_stays_unknown():
    now = pace([RankRecord(host="algo-1", rank=0, attempt=0)])
    assert (now.step, now.step_seconds, now.loading_fraction, now.spread) == (None, None, None, None)
    assert pace([]).ranks_wanted is None


def test_the_parts_of_the_time_add_up_to_the_wall():
    ranks = [rank(n, last_step_ns=13 * SECOND) for n in range(2)]
    spent = time_spent(ranks, 1 * SECOND, 16 * SECOND)
    parts = (spent.compute_seconds, spent.data_seconds, spent.communication_seconds, spent.checkpoint_seconds)
    assert sum(parts) == pytest.approx(spent.step_seconds) == 10.0
    assert spent.step_seconds + spent.lost_seconds == spent.wall_seconds == 15.0
    assert (spent.startup_seconds, spent.restarts_seconds, spent.end_seconds) == (2.0, 0.0, 3.0)


def test_attempts_follow_one_another_and_the_gap_is_lost():
    first = rank(0, last_step_ns=12 * SECOND)
    second = rank(0, attempt=1, steps=50, step=5.0, last_step_ns=21 * SECOND)
    spent = time_spent([first, second], 1 * SECOND, 22 * SECOND)
    assert (spent.step_count, spent.step_seconds) == (150, 15.0)
    assert (spent.startup_seconds, spent.restarts_seconds, spent.end_seconds) == (1.0, 4.0, 1.0)


def test_a_part_that_one_attempt_does_not_know_is_unknown():
    spent = time_spent([rank(0, data=None)], SECOND, 16 * SECOND)
    assert spent.data_seconds is None
    assert spent.compute_seconds is None
    assert spent.step_seconds == 10.0


def test_a_run_without_steps_or_without_an_end_is_not_judged():
    assert time_spent([], SECOND, 2 * SECOND).lost_seconds is None
    assert time_spent([rank(0)], SECOND, None).lost_seconds is None
