"""Numbers that stand for values a trace does not have behave like numbers, and are noticed where a script decides by them."""

import json

import pytest

from paceline.parts.plan.trace import values
from paceline.parts.plan.trace.session import TraceSession


@pytest.fixture
def session(tmp_path, monkeypatch):
    made = TraceSession(tmp_path / "out.json", device_type="cpu", world_size=1)
    monkeypatch.setattr(values, "_session", made)
    return made


def test_arithmetic_and_text_are_those_of_a_number(session):
    loss = values.StandInFloat(1.0)
    assert f"{loss:.3f}" == "1.000"
    assert json.dumps({"loss": loss}) == '{"loss": 1.0}'
    assert (loss + 1) * 2 / 4 == 1.0
    assert not session.notes


def test_a_decision_is_written_down_with_the_line_of_the_user(session):
    total = values.StandInFloat(1.0) * 3 + 1
    assert not total < 0.5
    ((what, file, line),) = session.notes
    assert "taken as 4.0 < 0.5" in what
    assert file == __file__
    assert line


def test_an_integer_is_one_too(session):
    count = values.StandInInteger(1)
    assert list(range(count)) == [0]
    assert not session.notes
    assert not count > 3
    assert any("taken as 1 > 3" in what for what, _, _ in session.notes)
