"""How often the state is kept, and what is said about it."""

import pytest

from paceline.parts.resume.recording.state_buffer import StateCell, StateHeader, new_buffer
from paceline.parts.resume.worker.frequency import Frequency, every

MS = 1_000_000


@pytest.mark.parametrize(
    ("cost_ms", "step_ms", "number"),
    [(2, 100, 1), (3, 100, 2), (10, 20, 12), (4, 100, 2), (1, 0, 1), (5000, 60_000, 5)],
)
def test_keeping_costs_at_most_two_percent_or_little_is_made_again(cost_ms, step_ms, number):
    assert every(cost_ms * MS, step_ms * MS) == number


def heads(frequency, count, cost_ms, step_ms, now=0):
    """So many heads; which of them were due."""
    due = []
    for number in range(1, count + 1):
        now += step_ms * MS
        if frequency.is_due(number, now):
            due.append(number)
            frequency.kept(now, now + cost_ms * MS)
            now += cost_ms * MS
    return due


def test_what_a_kill_costs_is_told_once(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    told = []
    cells = StateHeader(new_buffer()).cells
    due = heads(Frequency(cells, told.append), 200, 1, 20)
    assert due[:21] == [*range(1, 20), 21, 24] and cells[StateCell.EVERY] == 3
    assert told == ["the state is kept after every 3 steps: keeping takes 1.0 ms, a step 20.0 ms"]


def test_nothing_is_told_where_each_step_is_kept(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    told = []
    assert heads(Frequency(StateHeader(new_buffer()).cells, told.append), 200, 1, 100) == list(range(1, 201))
    assert told == []
