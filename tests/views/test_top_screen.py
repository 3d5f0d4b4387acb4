"""Keys, sorting, filtering and strips of `paceline top`."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.facts import RankRecord
from paceline.views.pace import Pace, RankPace
from paceline.views.top_screen import Action, Screen, Sort, chosen_ranks, key_line, pressed, text_lines
from paceline.views.top_strip import (
    HELD_SECONDS,
    LivePace,
    PaceHistory,
    RankUsage,
    Shown,
    late_fractions,
    rank_usage,
    strip_texts,
    strips,
)

SECOND = 1_000_000_000
NOW = 1_795_000_000 * SECOND


def rank(number, host="node05", **fields):
    return RankPace(host=host, rank=number, **fields)


def press(screen, keys, height=24):
    actions = []
    for key in keys:
        screen, action = pressed(screen, key, height)
        actions += [action] if action else []
    return screen, actions


def test_keys_sort_filter_and_choose_what_the_strips_show():
    assert press(Screen(), "s")[0].sort is Sort.LATE
    assert press(Screen(), "s" * len(Sort))[0] == Screen()
    assert press(Screen(), "2")[0].shown is Shown.STEP
    assert press(Screen(), "/no\x7fode\r")[0] == Screen(words="node")
    assert press(Screen(words="node"), "\x1b")[0] == Screen()
    assert press(Screen(), "/0-3\x1b")[0] == Screen()
    assert press(Screen(), "zZ?%")[0] == Screen()


def test_while_the_filter_is_typed_letters_are_no_keys():
    screen, actions = press(Screen(), "/qwtls1")
    assert screen.words == "qwtls1" and screen.is_typing and not actions


def test_keys_ask_for_what_the_screen_alone_cannot_do():
    assert press(Screen(), "wtlq")[1] == [Action.WHY, Action.STACKS, Action.LOG, Action.QUIT]


def test_long_text_is_read_page_by_page():
    screen = Screen(text=tuple(f"line {number}" for number in range(50)))
    assert text_lines(screen, 12, None).splitlines()[:2] == ["line 0", "line 1"]
    assert "40 more below" in text_lines(screen, 12, None)
    on, _ = press(screen, " ", 12)
    assert text_lines(on, 12, None).startswith("line 10\n")
    end, _ = press(screen, " " * 20, 12)
    assert "line 49" in text_lines(end, 12, None) and "more below" not in text_lines(end, 12, None)
    assert press(end, "b" * 20, 12)[0].first == 0
    assert press(end, "q", 12) == (Screen(), [])


def test_the_line_of_keys_says_what_is_chosen():
    assert key_line(Screen(sort=Sort.LATE, words="0-3"), None).startswith("[sort late, strip late, filter 0-3]  s sort")
    assert key_line(Screen(is_typing=True, words="no"), None) == "filter ranks (0-3,7) or host: no_"
    assert len(key_line(Screen(), 40)) == 40


RANKS = [rank(0, step_seconds=0.1), rank(1, host="algo-2", step_seconds=0.3), rank(2), rank(10, step_seconds=0.2)]


@pytest.mark.parametrize(
    ("words", "wanted"), [("", [0, 1, 2, 10]), ("0-2", [0, 1, 2]), ("algo", [1]), ("1", [1]), ("x", [])]
)
def test_a_filter_takes_ranks_or_part_of_a_host(words, wanted):
    assert [one.rank for one in chosen_ranks(Screen(words=words), RANKS, {}, {})] == wanted


@pytest.mark.parametrize(
    ("sort", "wanted"),
    [
        (Sort.STEP, [1, 10, 0, 2]),
        (Sort.LATE, [2, 0, 1, 10]),
        (Sort.CPU, [10, 0, 1, 2]),
        (Sort.RSS, [0, 10, 1, 2]),
    ],
)
def test_the_largest_comes_first_and_what_is_not_known_last(sort, wanted):
    late = {("node05", 2): 0.5, ("node05", 0): 0.0}
    usage = {("node05", 10): RankUsage(2.0, 5), ("node05", 0): RankUsage(1.0, 9)}
    assert [one.rank for one in chosen_ranks(Screen(sort=sort), RANKS, late, usage)] == wanted


def test_late_is_who_waits_least():
    now = Pace(
        ranks=(rank(0, exposed_communication_fraction=0.4), rank(1, exposed_communication_fraction=0.1), rank(2))
    )
    assert late_fractions(now) == {("node05", 0): 0.0, ("node05", 1): pytest.approx(0.3)}
    assert late_fractions(Pace(ranks=(rank(0, exposed_communication_fraction=0.4),))) == {}


def test_a_look_counts_for_the_seconds_since_the_one_before():
    history = PaceHistory()
    history.add(Pace(ranks=(rank(0, step_seconds=0.1), rank(1, step_seconds=0.3))), NOW, NOW - 3 * SECOND)
    assert history.values("node05", Shown.STEP, NOW) == [None] * 57 + [0.3] * 3
    later = NOW + 58 * SECOND
    history.add(Pace(ranks=(rank(0, step_seconds=0.2),)), later, later - SECOND)
    assert history.values("node05", Shown.STEP, later)[:3] == [0.3, 0.3, None]
    assert history.values("node05", Shown.STEP, later)[-1] == 0.2
    assert history.values("elsewhere", Shown.STEP, later) == [None] * 60


def test_a_long_watch_keeps_one_minute():
    history = PaceHistory()
    for second in range(1000):
        now = NOW + second * SECOND
        history.add(Pace(ranks=(rank(0, step_seconds=0.1),)), now, now - SECOND)
    assert len(history._step["node05"]) == 60


def test_steps_that_are_longer_than_the_time_between_looks_keep_their_figure():
    def ranks(steps):
        return [RankRecord(host="node05", rank=0, attempt=0, pid=1, step_count=steps, step_seconds=3.0 * steps)]

    live = LivePace(ranks(10), NOW)
    assert live.look(ranks(11), NOW + 3 * SECOND).step_seconds == 3.0
    assert live.look(ranks(11), NOW + 4 * SECOND).step_seconds == 3.0
    assert live.look(ranks(12), NOW + 6 * SECOND).step_seconds == 3.0
    assert live.history.values("node05", Shown.STEP, NOW + 6 * SECOND) == [None] * 54 + [3.0] * 6


def test_a_run_that_stands_has_no_time_of_a_step_after_a_while():
    ranks = [RankRecord(host="node05", rank=0, attempt=0, pid=1, step_count=9, step_seconds=9.0)]
    live = LivePace(ranks, NOW)
    assert live.look(ranks, NOW + (HELD_SECONDS + 1) * SECOND).step_seconds is None


def test_cpu_comes_from_the_telemetry():
    lines = [{"t_ns": NOW - ago * SECOND, "cpu": {"busy_fraction": ago / 100}} for ago in (70, 2, 1, 0)]
    found = strips(["node05", "gone"], Shown.CPU, PaceHistory(), {"node05": lines}, NOW)
    assert [one for one in found["node05"] if one is not None][-1] == pytest.approx(0.005, abs=0.01)
    assert found["gone"] == [None] * 60


def test_a_strip_shows_a_second_that_stands_out():
    values = {"node05": [0.01] * 59 + [0.5], "algo-2": [0.01] * 30 + [None] * 30}
    texts = strip_texts(values, Shown.LATE, 20)
    assert texts == {"node05": "▁" * 19 + "█", "algo-2": "▁" * 10 + "·" * 10}
    assert strip_texts(values, Shown.LATE, 20, ascii_only=True)["algo-2"] == "." * 10 + " " * 10


def test_what_is_healthy_looks_flat():
    assert set(strip_texts({"node05": [0.0, 0.02, 0.01] * 20}, Shown.LATE, 60)["node05"]) == {"▁"}


shares = st.lists(st.none() | st.floats(0, 2), min_size=60, max_size=60)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), shares), st.sampled_from(list(Shown)), st.integers(10, 60))
def test_a_larger_value_is_never_a_lower_block(values, shown, cells):
    texts = strip_texts(values, shown, cells)
    assert all(len(text) == cells for text in texts.values())
    if cells == 60:
        pairs = [(one, block) for host in values for one, block in zip(values[host], texts[host], strict=True)]
        known = sorted((pair for pair in pairs if pair[0] is not None), key=lambda pair: pair[0])
        assert [block for _, block in known] == sorted(block for _, block in known)
        assert all((one is None) is (block == "·") for one, block in pairs)


def test_cpu_and_memory_of_a_rank_are_those_of_its_process():
    def line(t, **ranks):
        return {"t_ns": NOW + t * SECOND, "ranks": ranks}

    before = {"pid": 7, "cpu_seconds": 10.0, "resident_bytes": 5}
    now = {"pid": 7, "cpu_seconds": 13.0, "resident_bytes": 6}
    lines = [line(0, **{"0": before, "1": before}), line(2, **{"0": now, "1": {**now, "pid": 8}, "x": now, "2": None})]
    assert rank_usage({"node05": lines, "empty": []}) == {
        ("node05", 0): RankUsage(1.5, 6),
        ("node05", 1): RankUsage(None, 6),
    }


def test_the_gpu_of_a_rank_is_the_one_that_it_joined_with():
    line = {
        "t_ns": NOW,
        "ranks": {str(rank): {"pid": rank} for rank in range(4)},
        "gpus": [{"index": 1, "busy_fraction": 0.9}, {"index": 0, "busy_fraction": 0.2}, {"index": 2}, None],
    }
    joined = [
        {"event": "rank_joined", "host": "node05", "rank": rank, "gpu_index": index}
        for rank, index in [(0, 0), (0, 1), (1, 0), (2, 2)]
    ]
    used = rank_usage(
        {"node05": [line], "node06": [{**line, "gpus": None}]},
        [{"event": "x"}, {"event": "rank_joined", "host": [], "rank": {}}, *joined],
    )
    assert [used["node05", rank].gpu_busy_fraction for rank in range(4)] == [0.9, 0.2, None, None]
    assert {used["node06", rank].gpu_busy_fraction for rank in range(4)} == {None}


def test_nothing_is_chosen_anew_by_a_key_that_is_none():
    screen = replace(Screen(), words="node", sort=Sort.CPU)
    assert press(screen, "\x00\t")[0] == screen
