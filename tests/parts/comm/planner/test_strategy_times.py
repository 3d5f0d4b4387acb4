"""Strategies side by side: the figure of each, and which one to take."""

import pytest

from paceline.parts.comm.planner.strategy_times import PLAIN, Try, combined, fastest, strategy_time


def tries(strategy, *seconds, exchange=0.004, noise=0.01):
    return [
        Try(
            strategy=strategy,
            run=f"r-{number}",
            samples=tuple(one * (1 + noise * (place % 3 - 1)) for place in range(30)),
            exchange_seconds=exchange,
        )
        for number, one in enumerate(seconds)
    ]


def times(exact=True, **by_name):
    plain = combined([one.samples for one in tries(PLAIN, *by_name[PLAIN])])
    return [
        strategy_time(name, tries(name, *seconds), plain, is_exact=exact or name == PLAIN)
        for name, seconds in by_name.items()
    ]


def test_the_median_over_the_rounds_counts_and_the_ratio_is_to_plain():
    plain, direct = times(plain=(0.040, 0.042, 0.090), direct=(0.021, 0.020, 0.021))
    assert plain.step.seconds == pytest.approx(0.042) and plain.times_plain == pytest.approx(1.0)
    assert direct.times_plain == pytest.approx(2.0) and direct.exchange_fraction == pytest.approx(0.004 / 0.021)
    assert direct.runs == ("r-0", "r-1", "r-2") and direct.step.count == 90


def test_the_fastest_exact_one_is_taken():
    assert fastest(times(plain=(0.04,), ring=(0.039,), direct=(0.02,))).strategy == "direct"
    assert fastest(times(exact=False, plain=(0.04,), int8=(0.02,))) is None


def test_a_difference_within_chance_is_none():
    assert fastest(times(plain=(0.0400,), direct=(0.0392,))) is None
    assert fastest(times(plain=(0.04, 0.05), direct=(0.037, 0.047))) is None


def test_a_strategy_that_failed_has_its_reason_and_no_figure():
    one = strategy_time("direct", [], None, is_exact=True, failure="the script failed with 2 ranks")
    assert one.step is None and one.times_plain is None and "failed" in one.failure
