"""How a job goes from Starting to its end."""

import msgspec
import pytest

from paceline.facts import SecondaryStatus as Secondary
from paceline.facts import Status
from paceline.parts.sagemaker.local.states import (
    Finished,
    JobStopRequested,
    LimitReached,
    StageFailed,
    StageReached,
    TrainingJobState,
    created,
    step,
    training_seconds,
)

PENDING, DOWNLOADING, TRAINING, UPLOADING = (
    StageReached(to=one) for one in (Secondary.PENDING, Secondary.DOWNLOADING, Secondary.TRAINING, Secondary.UPLOADING)
)


def after(*events):
    state = created(100.0)
    for number, event in enumerate(events, 1):
        state = step(state, event, 100.0 + number)
    return state


def names(state):
    return [str(one.status) for one in state.transitions]


def test_a_job_that_goes_well_passes_every_status_in_order():
    state = after(PENDING, DOWNLOADING, TRAINING, UPLOADING, Finished())
    assert names(state) == ["Starting", "Pending", "Downloading", "Training", "Uploading", "Completed"]
    assert (state.status, state.training_started, state.ended) == (Status.COMPLETED, 103.0, 105.0)
    assert training_seconds(state) == 2


def test_each_transition_ends_when_the_next_one_starts():
    transitions = after(PENDING, DOWNLOADING, TRAINING, UPLOADING, Finished()).transitions
    assert [one.ended for one in transitions[:-1]] == [one.started for one in transitions[1:]]
    assert transitions[-1].started == transitions[-1].ended


def test_a_stop_leads_over_stopping_and_uploading_to_stopped():
    state = after(PENDING, DOWNLOADING, TRAINING, JobStopRequested(), UPLOADING, Finished())
    assert names(state)[3:] == ["Training", "Stopping", "Uploading", "Stopped"]
    assert (state.status, state.secondary) == (Status.STOPPED, Secondary.STOPPED)


def test_while_it_stops_a_job_is_stopping_and_not_over():
    state = after(PENDING, DOWNLOADING, TRAINING, JobStopRequested())
    assert (state.status, state.secondary, state.over) == (Status.STOPPING, Secondary.STOPPING, False)


def test_the_time_limit_ends_as_stopped_with_a_name_of_its_own():
    state = after(PENDING, DOWNLOADING, TRAINING, LimitReached(), UPLOADING, Finished())
    assert (state.status, state.secondary) == (Status.STOPPED, Secondary.MAX_RUNTIME_EXCEEDED)


def test_the_time_limit_counts_from_training_alone():
    assert after(PENDING, DOWNLOADING, LimitReached()).why_stopping is None


def test_what_asked_first_for_the_end_names_it():
    stopped_first = after(PENDING, DOWNLOADING, TRAINING, JobStopRequested(), LimitReached(), Finished())
    limited_first = after(PENDING, DOWNLOADING, TRAINING, LimitReached(), JobStopRequested(), Finished())
    assert stopped_first.secondary is Secondary.STOPPED
    assert limited_first.secondary is Secondary.MAX_RUNTIME_EXCEEDED


def test_a_job_that_is_stopped_before_its_turn_never_trains():
    state = after(PENDING, JobStopRequested(), DOWNLOADING, TRAINING, Finished())
    assert names(state) == ["Starting", "Pending", "Stopping", "Stopped"]
    assert training_seconds(state) is None


@pytest.mark.parametrize("before", [(), (PENDING,), (PENDING, DOWNLOADING, TRAINING, UPLOADING)])
def test_a_job_can_fail_from_everywhere(before):
    state = after(*before, StageFailed(reason="x" * 2000))
    assert (state.status, state.secondary) == (Status.FAILED, Secondary.FAILED)
    assert len(state.reason) == 1024


@pytest.mark.parametrize("late", [JobStopRequested(), LimitReached(), Finished(), StageFailed(reason="late"), TRAINING])
def test_a_job_that_is_over_stays_as_it_is(late):
    over = after(PENDING, DOWNLOADING, TRAINING, UPLOADING, Finished())
    assert step(over, late, 999.0) == over


def test_a_status_is_never_entered_twice_or_backwards():
    state = after(PENDING, DOWNLOADING, DOWNLOADING, PENDING, TRAINING, TRAINING)
    assert names(state) == ["Starting", "Pending", "Downloading", "Training"]
    assert state.training_started == 105.0


@pytest.mark.parametrize("events", [(), (PENDING, DOWNLOADING, TRAINING, LimitReached()), (StageFailed(reason="no"),)])
def test_a_state_survives_being_kept(events):
    kept = msgspec.json.encode(after(*events))
    assert msgspec.json.decode(kept, type=TrainingJobState) == after(*events)
