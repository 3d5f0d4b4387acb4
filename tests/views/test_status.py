"""The one live line, on a terminal and in a file."""

from paceline.views.pace import Pace
from paceline.views.status import live_line, plain_line

NOW = Pace(
    ranks_here=8,
    ranks_wanted=8,
    step=1214,
    step_seconds=0.412,
    loading_fraction=0.021,
    exposed_communication_fraction=0.043,
    checkpoint_fraction=0.0,
    spread=1.03,
)
T_NS = 1_795_000_000_000_000_000


def test_the_live_line():
    assert live_line(NOW, 92.4) == (
        " step 1 214  412 ms  |  data 2%  exposed comm 4%  ckpt 0%  |  8/8 ranks  spread 1.03×  |  00:01:32"
    )


def test_one_rank_is_one():
    assert " 1/1 rank  " in live_line(Pace(ranks_here=1, ranks_wanted=1, step=7), 3.2)


def test_the_live_line_fits_a_narrow_ascii_terminal():
    assert (
        live_line(NOW, 92.4, width=60, ascii_only=True)
        == " step 1 214  412 ms  |  data ...s  spread 1.03x  |  00:01:32"
    )


def test_before_the_first_step_it_says_what_happens():
    starting = Pace(ranks_here=1, ranks_wanted=8)
    assert live_line(starting, 3.2, doing="waiting for algo-2") == " waiting for algo-2  |  1/8 ranks  |  00:00:03"
    assert live_line(starting, 3.2) == " no step seen yet  |  1/8 ranks  |  00:00:03"


def test_a_pause_between_two_looks_shows_the_step_without_a_time():
    assert live_line(Pace(ranks_here=2, ranks_wanted=2, step=7), 3.2) == (
        " step 7  |  data -  exposed comm -  ckpt -  |  2/2 ranks  |  00:00:03"
    )


def test_the_line_for_a_file():
    assert plain_line(NOW, T_NS) == (
        "2026-11-18T11:06:40Z paceline step=1214 step_ms=412 loading_pct=2 exposed_communication_pct=4 ranks=8/8 spread=1.03"
    )


def test_a_file_has_the_same_keys_when_nothing_is_known():
    assert plain_line(Pace(ranks_here=0), T_NS, doing="waiting for algo-2") == (
        "2026-11-18T11:06:40Z paceline step=- step_ms=- loading_pct=- exposed_communication_pct=- ranks=0/- spread=- "
        "doing=waiting_for_algo-2"
    )
