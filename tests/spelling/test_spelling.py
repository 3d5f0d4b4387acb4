import pytest

from paceline.spelling import most_alike, nearest, plural


@pytest.mark.parametrize(("number", "said"), [(0, "ranks"), (1, "rank"), (2, "ranks"), (0.5, "ranks")])
def test_one_of_a_thing_is_no_plural(number, said):
    assert plural(number, "rank") == said


def test_the_nearest_name_is_the_one_that_is_most_alike():
    assert nearest("hierachical", ["ring", "hierarchical", "direct"]) == "hierarchical"


def test_a_name_that_is_like_none_has_no_nearest():
    assert nearest("xyz", ["ring", "direct"]) is None
    assert nearest("ring", []) is None


def test_how_like_it_must_be_can_be_said():
    assert nearest("rang", ["ring"]) == "ring"
    assert nearest("rang", ["ring"], 0.9) is None


def test_several_come_in_order_of_likeness():
    assert most_alike("all_reduce", ["all_gather", "reduce", "all_reduce_"], 2, 0.5) == ["all_reduce_", "reduce"]
