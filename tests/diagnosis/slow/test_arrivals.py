"""Lateness from the stamps of flight recorders."""

from dataclasses import replace

import pytest

from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.slow.arrivals import Arrivals, late_seconds, regular_interval

MS = 1_000_000
STEP = 20 * MS


def traces(late, *, steps=100, ranks=2, buckets=3, first_index=6):
    """rank -> entries of `buckets` collectives a step; `late(rank, step, bucket)` in ms."""
    found = {rank: [] for rank in range(ranks)}
    start = index = first_index
    at = 0
    for step in range(steps):
        last = 0
        for bucket in range(buckets):
            index = start + step * buckets + bucket
            for rank in range(ranks):
                created = at + 10 * MS + bucket * MS + round(late(rank, step, bucket) * MS)
                found[rank].append(TraceEntry("0", index, "allreduce", "Float", (100 + bucket,), created))
                last = max(last, created)
        at = last + STEP - 10 * MS
    return found


def lateness(found, **options):
    arrivals = Arrivals(**options)
    for rank, entries in found.items():
        arrivals.add(rank, entries)
    return arrivals.lateness(lambda t_ns: None)


def test_a_rank_that_is_late_before_backward_is_late_for_every_bucket():
    found = lateness(traces(lambda rank, step, bucket: 30 * (rank == 1)))
    assert found.period == 3
    assert found.ranks[1].lags == pytest.approx((0.03, 0.03, 0.03))
    assert found.ranks[0].lags == (0.0, 0.0, 0.0)
    assert (found.ranks[1].late, found.spread_seconds) == pytest.approx((0.03, 0.03))
    assert (found.ranks[1].last_fraction, found.ranks[0].last_fraction) == (1.0, 0.0)
    assert found.step_bytes == 4 * (100 + 101 + 102)


def test_a_rank_that_is_late_inside_backward_is_on_time_for_the_first_buckets():
    found = lateness(traces(lambda rank, step, bucket: 50 * (rank == 1 and bucket == 2)))
    assert found.ranks[1].lags == pytest.approx((0.0, 0.0, 0.05))


def test_a_rank_that_is_late_now_and_then_regularly_has_an_interval_and_no_median_lag():
    found = lateness(traces(lambda rank, step, bucket: 200 * (rank == 0 and step % 10 == 0)))
    assert found.ranks[0].periodic == 10
    assert max(found.ranks[0].lags) == 0.0
    assert found.ranks[0].late == pytest.approx(0.02)
    assert found.ranks[1].periodic is None


def test_the_lanes_of_a_strategy_carry_a_step_together():
    found = traces(lambda rank, step, bucket: 30 * (rank == 1), buckets=4)
    lanes = {
        rank: [replace(e, group=f"gradients/{e.index % 2}", index=e.index // 2) for e in entries]
        for rank, entries in found.items()
    }
    together = lateness(lanes)
    assert (together.period, together.step_bytes) == (4, 4 * (100 + 101 + 102 + 103))
    assert together.ranks[1].lags == pytest.approx((0.03, 0.03))


def test_collectives_that_not_all_members_have_begun_do_not_count():
    found = traces(lambda rank, step, bucket: 0)
    found[1] = found[1][:-6]
    assert len(lateness(found).ranks[0].by_step) == 98


def test_too_few_collectives_or_one_rank_alone_say_nothing():
    assert lateness(traces(lambda *_: 0, steps=2)) is None
    assert lateness(traces(lambda *_: 0, ranks=1)) is None


def test_what_comes_twice_counts_once_and_the_oldest_go_first():
    found = traces(lambda rank, step, bucket: 5 * rank, steps=200)
    arrivals = Arrivals(600)
    for _ in range(2):
        for rank, entries in found.items():
            arrivals.add(rank, entries)
    steps = arrivals.lateness(lambda t_ns: None).ranks[1].by_step
    assert 50 < len(steps) < 200
    assert arrivals._count <= 600
    assert steps[-1][1] == pytest.approx(0.005)


def test_one_delay_counts_once_under_ddp_and_each_where_ranks_wait():
    assert late_seconds([0.05, 0.05, 0.05]) == 0.05
    assert late_seconds([0.05, 0.0, 0.03]) == pytest.approx(0.08)
    # A bucket at a time, each by less than noise: the last one shows all of it.
    assert late_seconds([0.0005 * n for n in range(20)]) == pytest.approx(0.0095)


def test_no_interval_in_lateness_without_a_rhythm():
    steps = range(60)
    assert regular_interval([0.2 if step in (3, 4, 20, 41, 55) else 0.0 for step in steps], steps) is None
    assert regular_interval([0.2 if step % 7 == 0 else 0.001 for step in steps], steps) == 7
    assert regular_interval([0.2] * 60, steps) is None
