"""A job that fetches data first: no rank starts before every host has its own, and whatever happens meanwhile."""

import pytest

from paceline.facts import Channel, Contract, Job, Program, ProgramKind, SecondaryStatus
from paceline.launch.job.messages import (
    FinishMessage,
    IdleMessage,
    ReadyMessage,
    StartAttemptMessage,
    StartWorkersMessage,
    StopMessage,
)
from paceline.launch.job.outcome import Stop, StopKind
from paceline.launch.job.state import (
    HostJoined,
    HostLeft,
    HostSaid,
    JobPhase,
    Member,
    ReportRestart,
    StopRequested,
    Tick,
    begin,
    step,
)

REMOTE = Contract(channels=(Channel(name="train", source="s3://bucket/data"),))
CTRL_C = Stop(StopKind.SIGNAL, "SIGINT", "Ctrl-C at the agent")


def idle(at: float, host: str, attempt: int) -> HostSaid:
    return HostSaid(at, host, IdleMessage(attempt=attempt))


def ready(at: float, host: str, attempt: int) -> HostSaid:
    return HostSaid(at, host, ReadyMessage(attempt=attempt))


def play(state, *events):
    actions = ()
    for event in events:
        state, actions = step(state, event)
    return state, actions


def fetching(**terms):
    job = Job(
        name="j",
        program=Program(kind=ProgramKind.SCRIPT, target="t.py"),
        min_hosts=2,
        max_hosts=2,
        contract=REMOTE,
        **terms,
    )
    joined = [HostJoined(0.0, Member(host=f"h{number}", address="a", ranks=1, node_rank=number)) for number in range(2)]
    state, actions = play(begin(job, 0.0), *joined)
    assert isinstance(actions[0], StartAttemptMessage) and state.phase is JobPhase.FETCHING
    return state


@pytest.mark.parametrize(
    ("terms", "fetches"),
    [
        ({"contract": REMOTE}, True),
        ({"checkpoint_url": "s3://bucket/state/"}, True),
        ({"output_url": "s3://bucket/out/"}, False),
        ({"contract": Contract(channels=(Channel(name="train", source="/data:old"),))}, False),
    ],
)
def test_only_what_comes_before_the_ranks_makes_them_wait(terms, fetches):
    assert Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target="t.py"), **terms).fetches is fetches


def test_ranks_start_when_the_last_host_is_ready():
    state, actions = step(fetching(), ready(5.0, "h1", 0))
    assert actions == () and state.phase is JobPhase.FETCHING
    state, actions = step(state, ready(6.0, "h0", 0))
    assert actions == (StartWorkersMessage(attempt=0),) and state.phase is JobPhase.RUNNING


def test_the_time_limit_counts_from_the_start_of_the_ranks():
    state = fetching(max_run_seconds=10.0)
    state, actions = step(state, Tick(500.0))
    assert actions == () and state.phase is JobPhase.FETCHING
    state, _ = play(state, ready(1000.0, "h0", 0), ready(1000.0, "h1", 0))
    assert step(state, Tick(1009.0))[1] == ()
    assert isinstance(step(state, Tick(1010.0))[1][0], StopMessage)


def test_a_word_of_another_attempt_counts_for_nothing():
    state, actions = play(fetching(), ready(1.0, "h0", 1), ready(1.0, "h1", 1))
    assert actions == () and state.ready == frozenset()


def test_a_stop_ends_what_is_fetched_and_then_the_job():
    state, (stop,) = step(fetching(), StopRequested(1.0, CTRL_C))
    assert isinstance(stop, StopMessage) and state.phase is JobPhase.STOPPING
    state, actions = play(
        state,
        ready(1.5, "h0", 0),
        idle(2.0, "h0", 0),
        idle(2.0, "h1", 0),
    )
    assert isinstance(actions[0], FinishMessage) and actions[0].outcome.secondary_status is SecondaryStatus.STOPPED
    assert state.started_at is None


def test_a_host_that_is_lost_while_it_fetches_ends_the_attempt():
    state, (stop,) = step(fetching(max_restarts=1), HostLeft(1.0, "h1", "silent"))
    assert isinstance(stop, StopMessage)
    state, actions = step(state, idle(2.0, "h0", 0))
    assert isinstance(actions[0], ReportRestart) and state.phase is JobPhase.WAITING
    state, (form,) = step(state, HostJoined(3.0, Member(host="h1", address="a", ranks=1, node_rank=1)))
    assert isinstance(form, StartAttemptMessage) and form.attempt == 1 and state.phase is JobPhase.FETCHING
