"""When the cost of a restart is recorded: once, after every rank's first step, over attempts and tries."""

import pytest

from paceline.launch.coordinator.restart_costs import RestartMonitor
from paceline.recording.layout import SUBMISSION_FILE

STARTED_NS = 10**18


def ranks(attempt, *steps, loaded_ns=0):
    fields = {"attempt": attempt, "loaded_ns": loaded_ns, "saved_steps": 0, "checkpoint_seconds": 0.0}
    return {str(rank): {"rank": rank, "step_count": count, **fields} for rank, count in enumerate(steps)}


def heard(monitor, progress, attempt, world_size):
    """The newest line of each host, one after the other."""
    for host in progress:
        monitor.look(host, progress, attempt, world_size)


@pytest.fixture
def events():
    return []


@pytest.fixture
def monitor(tmp_path, events):
    return RestartMonitor(tmp_path, STARTED_NS, lambda event, **fields: events.append((event, fields)))


def test_a_first_attempt_is_no_restart(monitor, events):
    heard(monitor, {"a": ranks(0, 5, 5)}, 0, 2)
    monitor.ended({"a": ranks(0, 5, 5)}, 0)
    assert events == []


def test_a_restart_is_recorded_once_when_every_rank_has_made_a_step(monitor, events):
    monitor.ended({"a": ranks(0, 5, 4), "b": ranks(0, 6)}, 0)
    # The newest lines are still those of the attempt before, then of ranks that start.
    heard(monitor, {"a": ranks(0, 5, 4), "b": ranks(0, 6)}, 1, 3)
    heard(monitor, {"a": ranks(1, 1, 1), "b": ranks(1, 0)}, 1, 3)
    assert events == []
    for _ in range(2):
        heard(monitor, {"a": ranks(1, 2, 2), "b": ranks(1, 1)}, 1, 3)
    ((event, fields),) = events
    assert (event, fields["attempt"]) == ("attempt_began", 1)
    assert (fields["restart"].loaded, fields["restart"].lost_steps) == (False, 6)


def test_an_attempt_that_ends_before_all_ranks_have_stepped_is_judged_by_those_that_have(monitor, events):
    monitor.ended({"a": ranks(0, 5, 5)}, 0)
    monitor.ended({"a": ranks(1, 1, 0)}, 1)
    monitor.ended({"a": ranks(2, 0, 0)}, 2)
    assert [fields["attempt"] for _, fields in events] == [1]


def test_steps_since_the_newest_progress_are_lost_too(monitor, events):
    monitor.ended({"a": ranks(0, 0, 0)}, 0, None, 12)
    heard(monitor, {"a": ranks(1, 1, 1)}, 1, 2)
    assert events[0][1]["restart"].lost_steps == 12


def test_a_progress_that_nobody_meant_is_no_rank(monitor, events):
    monitor.ended({"a": {"0": 7, "1": {"rank": "x"}}}, 0)
    heard(monitor, {"a": {"0": None}}, 1, 1)
    assert events == []


def test_a_rank_that_is_none_and_claims_a_step_is_no_reason_to_judge(monitor, events):
    monitor.ended({"a": ranks(0, 5)}, 0)
    heard(monitor, {"a": {"0": {"rank": "x", "attempt": 1, "step_count": 3}}}, 1, 1)
    assert events == []


def test_the_tries_of_a_job_before_count_as_attempts(recording, events):
    first = recording("r-000001")
    first.identity()
    (first.path / SUBMISSION_FILE).write_text("{}")
    for rank in range(2):
        first.segment("algo-1", rank, steps=7)
    second = first.path.with_name("r-000001.2")
    second.mkdir()
    monitor = RestartMonitor(second, 2 * 10**18, lambda event, **fields: events.append(fields))
    heard(monitor, {"a": ranks(0, 1, 1)}, 0, 2)
    (fields,) = events
    assert (fields["attempt"], fields["restart"].lost_steps) == (0, 7)


def test_a_resume_is_no_restart_from_nothing_and_its_steps_count_with_those_before(monitor, events):
    monitor.ended({"a": ranks(0, 8, 8)}, 0, 7)
    heard(monitor, {"a": ranks(1, 3, 3)}, 1, 2)
    monitor.ended({"a": ranks(1, 3, 3)}, 1)
    assert events == []
    heard(monitor, {"a": ranks(2, 1, 1)}, 2, 2)
    ((_, fields),) = events
    assert (fields["attempt"], fields["restart"].lost_steps) == (2, 10)


def test_a_resume_keeps_the_checkpoints_that_were_saved_before_it(monitor, events):
    saved = {"0": {**ranks(0, 8)["0"], "saved_steps": 5, "checkpoint_seconds": 0.1}}
    monitor.ended({"a": saved}, 0, 7)
    monitor.ended({"a": ranks(1, 3)}, 1)
    heard(monitor, {"a": ranks(2, 1, loaded_ns=STARTED_NS + 1)}, 2, 1)
    ((_, fields),) = events
    assert (fields["restart"].loaded, fields["restart"].lost_steps) == (True, 5)
