import pytest

from paceline.contract.metric_definitions import compiled


def test_every_number_of_a_line_is_found_in_order():
    (loss,) = compiled([("loss", r"loss[ =]([0-9.e-]+)")])
    assert list(loss.values("loss=0.5 then loss 1e-3")) == [0.5, 1e-3]


@pytest.mark.parametrize("line", ["loss=high", "nothing", ""])
def test_what_is_no_number_is_passed_over(line):
    (loss,) = compiled([("loss", r"loss=(\w+)")])
    assert list(loss.values(line)) == []


def test_an_optional_group_that_is_not_there_is_no_number():
    (loss,) = compiled([("loss", r"loss(=\d+)?")])
    assert list(loss.values("loss")) == []


def test_an_expression_without_a_group_finds_no_number():
    (loss,) = compiled([("loss", r"loss=[0-9.]+")])
    assert list(loss.values("loss=0.5")) == []
