"""The offset between two clocks, from exchanges that take their time."""

import random

import pytest

from paceline.diagnosis.clock_offset import OffsetEstimate

MS = 1_000_000


def exchange(estimate, *, at_ns, offset_ns, out_ns, back_ns):
    estimate.add(at_ns, at_ns + out_ns + offset_ns, at_ns + out_ns + back_ns)


def test_before_the_first_answer_nothing_is_known():
    estimate = OffsetEstimate()
    assert estimate.offset_ns is None
    assert estimate.round_trip_ns is None


def test_an_even_way_gives_the_exact_offset():
    estimate = OffsetEstimate()
    exchange(estimate, at_ns=1_000 * MS, offset_ns=-37 * MS, out_ns=5 * MS, back_ns=5 * MS)
    assert estimate.offset_ns == -37 * MS
    assert estimate.round_trip_ns == 10 * MS


def test_the_quickest_exchange_is_believed():
    estimate = OffsetEstimate()
    exchange(estimate, at_ns=0, offset_ns=100 * MS, out_ns=1 * MS, back_ns=1 * MS)
    exchange(estimate, at_ns=1_000 * MS, offset_ns=100 * MS, out_ns=1 * MS, back_ns=400 * MS)
    assert estimate.offset_ns == 100 * MS
    assert estimate.round_trip_ns == 2 * MS


def test_the_error_is_at_most_half_the_round_trip():
    chance = random.Random(3)
    for offset_ns in (-3_600_000 * MS, 0, 12 * MS):
        estimate = OffsetEstimate()
        for number in range(50):
            out_ns, back_ns = chance.randrange(20 * MS), chance.randrange(20 * MS)
            exchange(estimate, at_ns=number * 1_000 * MS, offset_ns=offset_ns, out_ns=out_ns, back_ns=back_ns)
            assert abs(estimate.offset_ns - offset_ns) <= estimate.round_trip_ns / 2 + 1


def test_an_old_sample_is_forgotten_so_that_a_clock_that_was_set_is_followed():
    estimate = OffsetEstimate(recent_samples=4)
    exchange(estimate, at_ns=0, offset_ns=0, out_ns=0, back_ns=0)
    for number in range(1, 5):
        exchange(estimate, at_ns=number * 1_000 * MS, offset_ns=50 * MS, out_ns=MS, back_ns=MS)
    assert estimate.offset_ns == 50 * MS


def test_of_equally_quick_samples_the_newest_counts():
    estimate = OffsetEstimate()
    exchange(estimate, at_ns=0, offset_ns=1 * MS, out_ns=MS, back_ns=MS)
    exchange(estimate, at_ns=9 * MS, offset_ns=2 * MS, out_ns=MS, back_ns=MS)
    assert estimate.offset_ns == 2 * MS


@pytest.mark.parametrize("received_ns", [999, 0])
def test_an_answer_from_before_its_question_is_left_out(received_ns):
    estimate = OffsetEstimate()
    estimate.add(1_000, 5_000, received_ns)
    assert estimate.offset_ns is None
