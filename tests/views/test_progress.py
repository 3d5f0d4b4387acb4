"""One line about work that lasts."""

import pytest

from paceline.views.progress import BYTES, RATE_SECONDS, RecentRate, finished_text, progress_text

GIB = 1 << 30


def test_bytes_have_a_bar_a_share_a_rate_and_the_time_that_is_left():
    assert progress_text("packing code", GIB // 2, GIB, 10, BYTES, per_second=GIB / 20) == (
        "packing code [#####.....] 50% of 1.0 GiB, 54 MB/s, 10 s left"
    )


def test_things_are_counted():
    assert progress_text("bench all_reduce", 4, 12, 20, "sizes") == (
        "bench all_reduce [###.......] 4 of 12 sizes, 40 s left"
    )


@pytest.mark.parametrize(("done", "seconds"), [(6, 2.9), (0.2, 60)])
def test_nothing_is_estimated_from_too_little(done, seconds):
    assert "left" not in progress_text("planning", done, 12, seconds, "types")


def test_work_without_a_known_end_says_how_long_it_has_taken():
    assert progress_text("running train.py", 0, None, 12, "") == "running train.py, 12 s"
    assert progress_text("reading steps", 1200, None, 4, "files") == "reading steps 1 200 files, 4.0 s"


def test_when_nothing_moves_it_says_what_it_waits_for():
    text = progress_text("asking", 1, 3, 20, "hosts", still_seconds=6, waits_for="algo-2", per_second=1)
    assert text == "asking [###.......] 1 of 3 hosts, nothing new for 6.0 s, waiting for algo-2"


def test_the_last_line_says_how_much_it_was():
    assert finished_text("packing code", GIB, GIB, 38, BYTES) == "packing code: 1.0 GiB (38 s)"
    assert finished_text("planning", 3, None, 2, "types") == "planning: 3 types (2.0 s)"
    assert finished_text("running train.py", 0, None, 2, "") == "running train.py: done (2.0 s)"


def test_the_rate_is_that_of_the_last_ten_seconds():
    rate = RecentRate(0.0)
    for second in range(1, 31):
        rate.at(second, 100 * second if second <= 10 else 1000 + (second - 10))
    assert rate.per_second == pytest.approx(1.0)
    assert rate.still_seconds(33.0) == 3.0


def test_a_rate_needs_two_looks_and_holds_few_of_them():
    rate = RecentRate(0.0)
    assert rate.per_second is None
    for look in range(10_000):
        rate.at(look * 0.25, look)
    assert len(rate._looks) <= RATE_SECONDS / 0.25 + 2
