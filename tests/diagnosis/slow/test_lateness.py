"""Who holds the others up, on lateness that chance made and on lateness that somebody has."""

import random

import pytest

from paceline.diagnosis.slow.lateness import behind, held_up


def by_chance(rng, ranks, steps=300, stretch=1):
    """In each step, or in so many in a row, the ranks are a little late in an order that chance makes."""
    costs = {rank: [] for rank in range(ranks)}
    while len(costs[0]) < steps:
        for rank in costs:
            costs[rank] += [rng.expovariate(1 / 0.005)] * stretch
    return costs


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("stretch", [1, 10])
def test_ranks_that_are_late_in_turn_hold_nobody_up(ranks, stretch):
    rng = random.Random(ranks)
    found = [held_up(by_chance(rng, ranks, stretch=stretch), measured=True) for _ in range(300)]
    # Each of them has a rank that was the last most often, and with two ranks it was so in half of the steps.
    assert sum(bool(one.ranks) for one in found) <= 1


def test_one_that_is_later_by_half_the_noise_of_a_step_is_found():
    costs = by_chance(random.Random(3), 4)
    costs[2] = [cost + 0.01 for cost in costs[2]]
    found = held_up(costs, measured=True)
    assert found.ranks == (2,)
    assert found.gain.low < 0.0055 < found.gain.high


def test_two_of_four():
    costs = by_chance(random.Random(4), 4)
    costs = {rank: [cost + 0.03 * (rank in (1, 3)) for cost in own] for rank, own in costs.items()}
    assert held_up(costs, measured=True).ranks == (1, 3)


def test_a_single_long_pause_makes_nobody_late():
    costs = by_chance(random.Random(5), 2)
    costs[1][50] += 10.0
    assert held_up(costs, measured=True).ranks == ()
    assert behind(costs)[1].low < 0


def test_of_a_few_steps_nothing_is_known():
    assert held_up({0: [0.0] * 15, 1: [1.0] * 15}, measured=True) is None
    assert held_up({0: [1.0] * 300}, measured=True) is None
