"""When a later measurement says that something got worse, and when it does not."""

import random

import pytest

from paceline.parts.comm.planner.regression import Baseline, Figure, compare, confirmed, spread

DAY = 86_400 * 10**9


def points(*seconds, mad=0.02, count=20):
    return {
        f"{number}K": Figure(seconds=one, mad_seconds=one * mad, count=count) for number, one in enumerate(seconds, 1)
    }


def kept(*seconds, day=0, mad=0.02):
    return Baseline(made_ns=day * DAY, points=points(*seconds, mad=mad))


def test_the_same_again_is_not_worse():
    comparison = compare(points(1.0, 2.0, 4.0), kept(1.0, 2.0, 4.0))
    assert not comparison.worse and len(comparison.changes) == 3


def test_a_third_slower_at_every_size_is_worse_and_says_by_how_much():
    comparison = compare(points(1.31, 2.6, 5.4), kept(1.0, 2.0, 4.0, day=3))
    assert [one.label for one in comparison.worse] == ["1K", "2K", "3K"]
    assert [round(one.slower_fraction, 2) for one in comparison.worse] == [0.31, 0.30, 0.35]
    assert comparison.since_ns == 3 * DAY


def test_a_tenth_is_within_the_margin():
    assert not compare(points(1.09, 2.18, 4.3), kept(1.0, 2.0, 4.0)).worse


def test_one_figure_among_many_may_be_chance():
    past = kept(1.0, 2.0, 4.0, 8.0, 16.0)
    assert not compare(points(1.0, 2.0, 6.0, 8.0, 16.0), past).worse
    assert [one.label for one in compare(points(1.0, 2.0, 6.0, 12.0, 16.0), past).worse] == ["3K", "4K"]


def test_one_figure_alone_is_judged():
    assert compare(points(1.5), kept(1.0)).worse


def test_noisy_figures_are_not_judged_and_said():
    comparison = compare(points(3.0, 2.0), kept(1.0, 2.0, mad=0.5))
    assert comparison.changes == () and comparison.too_noisy == ("1K", "2K") and not comparison.worse


def test_noise_of_today_widens_the_margin_by_its_own_uncertainty_only():
    quiet = kept(1.0, 1.0, 1.0)
    assert compare(points(1.5, 1.5, 1.5, mad=0.2, count=100), quiet).worse
    assert not compare(points(1.5, 1.5, 1.5, mad=0.3, count=5), quiet).worse


def test_a_size_without_a_past_is_new():
    assert compare(points(1.0, 2.0), kept(1.0)).new == ("2K",)


def test_the_better_of_two_measurements_counts():
    first = compare(points(1.5, 1.5, 1.5), kept(1.0, 1.0, 1.0))
    again = compare({"1K": Figure(seconds=1.02), "2K": Figure(seconds=1.6)}, kept(1.0, 1.0, 1.0))
    both = confirmed(first, again)
    assert [one.slower_fraction for one in both.changes] == pytest.approx([0.02, 0.5, 0.5])
    assert [one.label for one in both.worse] == ["2K", "3K"]


def test_ordinary_noise_seldom_raises_an_alarm():
    chance = random.Random(7)

    def measured() -> Baseline:
        samples = {
            str(size): [chance.gauss(1.0, 0.08) * (1 + 0.03 * chance.gauss(0, 1)) for _ in range(20)]
            for size in range(20)
        }
        return Baseline(made_ns=DAY, points={label: spread(times) for label, times in samples.items()})

    assert not any(compare(measured().points, measured()).worse for _ in range(150))
