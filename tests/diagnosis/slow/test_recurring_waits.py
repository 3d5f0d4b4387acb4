"""A wait that comes again with each epoch is found, and chance is not."""

import random

import pytest

from paceline.diagnosis.slow.recurring_waits import recurring_wait
from paceline.facts import Step

MS = 1_000_000


def steps(waits_ms, own_ms=40.0):
    """Steps that wait so long for their data, and then compute."""
    return [
        Step(
            index=number + 1,
            end_ns=0,
            duration_ns=round((wait + own_ms) * MS),
            data_ns=round(wait * MS),
            communication_ns=0,
            checkpoint_ns=0,
        )
        for number, wait in enumerate(waits_ms)
    ]


@pytest.mark.parametrize(("epoch", "count", "wait_ms"), [(50, 8, 3000), (50, 3, 500), (7, 20, 150), (400, 3, 20_000)])
def test_a_wait_at_each_epoch(epoch, count, wait_ms):
    found = recurring_wait(steps([wait_ms if number % epoch == 0 else 0.1 for number in range(epoch * count)]))
    assert (found.count, found.every_steps) == (count, epoch)
    assert found.seconds == pytest.approx(wait_ms / 1e3)
    assert found.fraction == pytest.approx(wait_ms / (wait_ms + 0.1 * (epoch - 1) + 40 * epoch), rel=0.01)


def test_an_epoch_may_have_some_steps_more_or_less():
    starts, at = set(), 0
    for length in (50, 48, 53, 50, 51):
        starts.add(at)
        at += length
    assert recurring_wait(steps([2000 if number in starts else 1 for number in range(at)])).count == 5


@pytest.mark.parametrize(
    "waits",
    [
        [],
        [0.0] * 200,
        [3000.0] + [0.0] * 199,
        [3000.0 if number in (0, 100) else 0.0 for number in range(200)],
        [3000.0 if number in (0, 10, 150, 155) else 0.0 for number in range(200)],
        # Most steps wait: that is a loss of each step.
        [300.0 if number % 2 else 0.0 for number in range(200)],
        # The steps between wait for longer, all together.
        [500.0 if number % 50 == 0 else 40.0 for number in range(200)],
        # Short ones.
        [50.0 if number % 50 == 0 else 0.0 for number in range(200)],
        # Not much longer than usual.
        [150.0 if number % 50 == 0 else 30.0 for number in range(200)],
    ],
)
def test_no_wait_that_comes_again(waits):
    assert recurring_wait(steps(waits)) is None


def test_waits_by_chance_do_not_come_again():
    """Long waits at random places, as a shared disk gives them: of 500 runs hardly one looks like epochs."""
    alarms = 0
    for seed in range(500):
        chance = random.Random(seed)
        waits = [chance.expovariate(1 / 2) + (chance.random() < 0.02) * chance.uniform(100, 2000) for _ in range(400)]
        found = recurring_wait(steps(waits))
        alarms += found is not None
    assert alarms <= 2
