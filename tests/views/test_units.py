"""Numbers with their units."""

import pytest

from paceline.views import units


def test_one_of_a_thing_is_not_named_in_the_plural():
    assert [units.counted(number, "rank") for number in (0, 1, 2, 2048)] == [
        "0 ranks",
        "1 rank",
        "2 ranks",
        "2 048 ranks",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05, "0.1 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (59.6, "1m 00s"),
        (2467, "41m 07s"),
        (7443, "2h 04m"),
        (93600, "1d 02h"),
    ],
)
def test_a_duration_has_its_two_largest_units(value, text):
    assert units.duration(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.00421, "4.21 ms"), (0.0412, "41.2 ms"), (0.412, "412 ms"), (12.4, "12400 ms")]
)
def test_a_step_time_has_three_digits_that_matter(seconds, text):
    assert units.milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(512, "512 B"), (3 * 2**30, "3.0 GiB"), (139.8 * 2**30, "140 GiB"), (2**50, "1024 TiB")]
)
def test_memory_is_binary(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B/s"), (3400, "3.4 kB/s"), (1.25e9, "1.2 GB/s")])
def test_network_is_decimal(value, text):
    assert units.rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.42, "0.4 samples/s"), (9.96, "10.0 samples/s"), (2860.4, "2 860 samples/s")]
)
def test_samples_of_slow_trainings_have_a_decimal(value, text):
    assert units.samples_rate(value) == text


@pytest.mark.parametrize(
    "spell",
    [
        units.count,
        units.samples_rate,
        units.duration,
        units.clock,
        units.milliseconds,
        units.percent,
        units.times,
        units.size,
        units.rate,
        units.stamp,
    ],
)
def test_unknown_is_never_zero(spell):
    assert spell(None) == "-"


def test_a_stopwatch_and_a_stamp():
    assert units.clock(92.7) == "00:01:32"
    assert units.stamp(1_795_000_000_000_000_000) == "2026-11-18T11:06:40Z"
