"""A value has one grammar, whichever verb takes it."""

import pytest

from paceline.cli.values import (
    counted,
    counts,
    duration,
    duration_seconds,
    fail_on,
    measured_at,
    number_between,
    scaled_count,
)
from paceline.errors import UsageError


def refusal(function, *arguments, **options) -> UsageError:
    with pytest.raises(UsageError) as refused:
        function(*arguments, **options)
    return refused.value


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("12H", 43200), ("1d", 86400), ("1h30m", 5400)]
)
def test_a_duration_is_seconds_or_a_sum_of_units(text, seconds):
    assert duration_seconds("--max-run", text) == duration("--max-run", text) == seconds


@pytest.mark.parametrize("text", ["soon", "", " ", "1w", "m", "1d12", "2h30", "1m5"])
def test_what_is_no_duration_is_refused_with_one_that_is(text):
    error = refusal(duration_seconds, "--timeout", text, "10m")
    assert (error.code, error.next) == ("U03", "--timeout 10m")


@pytest.mark.parametrize("text", ["0", "-5m", "9999999999999999999d"])
def test_a_duration_that_cannot_be_is_refused(text):
    assert refusal(duration, "--deadline", text).code == "U03"
    assert duration("--startup", "0", zero=True) == 0


def test_a_count_is_a_whole_number_from_1_on_or_from_0():
    assert (counted("-n", "20"), counted("-w", " 0 ", zero=True), counts("--hosts", "2, 1,2")) == (20, 0, (2, 1))
    assert {refusal(counted, "-n", text).code for text in ("0", "-1", "1.5", "nan", "inf")} == {"U03"}
    assert refusal(counted, "-n", "many").code == "U03"
    assert scaled_count("--parameters", "340M") == 340_000_000


def test_a_number_in_a_range_is_refused_outside_of_it():
    assert number_between("--port", "0", 0, 65_535) == 0
    for text in ("-1", "65536", "1.5", "x", ""):
        assert refusal(number_between, "--port", text, 0, 65_535).code == "U03"


def test_a_measured_step_has_hosts_and_perhaps_devices():
    assert measured_at("2=335") == (2, None, 0.335)
    assert measured_at("1x4=310") == (1, 4, 0.31)
    assert refusal(measured_at, "335").code == "U03"


def test_what_is_to_fail_is_taken_in_any_capitals_and_refused_with_the_nearest():
    known = ("any", "stall", "N01")
    assert fail_on(["n01,ANY", "Stall"], known) == {"N01", "any", "stall"}
    assert fail_on([], known) == frozenset()
    assert refusal(fail_on, ["stal"], known).saw == "the nearest one is stall"
    assert refusal(fail_on, ["xyz"], known, ("any", "codes")).saw == "there are any, codes"
