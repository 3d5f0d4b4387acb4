"""Ranks and hosts as people write them."""

import pytest

from paceline.recording.rank_sets import parse_ranks, spell_ranks


@pytest.mark.parametrize("ranks", [(), (3,), (0, 1, 2), (0, 2, 3, 4, 9)])
def test_ranks_that_are_spelled_are_read_back(ranks):
    assert not ranks or parse_ranks(spell_ranks(ranks)) == frozenset(ranks)


def test_neighbours_are_folded():
    assert spell_ranks([7, 0, 1, 2, 2]) == "0-2,7"


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1"])
def test_what_is_no_set_of_ranks_is_refused(text):
    with pytest.raises(ValueError):
        parse_ranks(text)
