"""Ranks and hosts as people write them."""

import pytest

from paceline.recording.rank_sets import named_ranks, parse_ranks, spell_ranks


@pytest.mark.parametrize("ranks", [(), (3,), (0, 1, 2), (0, 2, 3, 4, 9)])
def test_ranks_that_are_spelled_are_read_back(ranks):
    assert not ranks or parse_ranks(spell_ranks(ranks)) == frozenset(ranks)


def test_neighbours_are_folded():
    assert spell_ranks([7, 0, 1, 2, 2]) == "0-2,7"


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1"])
def test_what_is_no_set_of_ranks_is_refused(text):
    with pytest.raises(ValueError):
        parse_ranks(text)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([1, 0, 2, 2], "ranks 0-2"), ([0, 2, 4, 5], "ranks 0,2 and 2 more")],
)
def test_ranks_in_a_sentence(ranks, text):
    assert named_ranks(ranks, most=2) == text
