"""What chance does to a mean, a share and a count."""

import random

import pytest

from paceline.diagnosis.slow.noise import blocks, chance_of_count, chance_of_share, estimate, student_quantile


def test_values_fill_equal_blocks_and_the_first_of_them_are_left_out():
    assert blocks([9.0, *map(float, range(40))]) == [2 * n + 0.5 for n in range(20)]
    assert blocks([1.0] * 15) == []
    assert blocks([1.0] * 10, least=1) == [1.0] * 10


@pytest.mark.parametrize(
    "p, degrees, known", [(0.9995, 7, 5.408), (0.9995, 19, 3.883), (0.999, 9, 4.297), (0.9999, 19, 4.590)]
)
def test_students_quantile(p, degrees, known):
    assert student_quantile(p, degrees) == pytest.approx(known, rel=0.01)


def test_the_true_mean_is_seldom_outside_of_its_interval():
    rng = random.Random(1)
    outside = 0
    for _ in range(2000):
        found = estimate(blocks([rng.gauss(0, 1) for _ in range(200)]))
        outside += found.low > 0
    assert outside <= 6


def test_what_lasts_for_many_steps_widens_the_interval():
    rng = random.Random(2)
    outside = 0
    for _ in range(1000):
        level, values = 0.0, []
        # A disturbance that fades over about thirty steps, three of the twenty blocks.
        for _ in range(200):
            level = 0.97 * level + rng.gauss(0, 1)
            values.append(level)
        outside += estimate(blocks(values)).low > 0
    assert outside <= 30


def test_several_means_ask_for_more_than_one():
    means = [1.0, 1.1] * 5
    assert estimate(means, comparisons=8).low < estimate(means).low < 1.05
    assert estimate(means[:7]) is None


def test_tails_of_counts_and_shares():
    assert chance_of_share(0, 5, 0.1) == pytest.approx(1)
    assert chance_of_share(3, 5, 0.1) == pytest.approx(0.00856)
    assert chance_of_count(0, 3.0) == 1
    assert chance_of_count(3, 2.0) == pytest.approx(0.3233, rel=1e-3)
    assert chance_of_count(1300, 1053.0) < 1e-9
    assert chance_of_count(1100, 1053.0) == pytest.approx(0.076, rel=0.05)
