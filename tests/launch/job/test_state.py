"""Tables of events and what the job does about them. No clock, no process."""

import random
from dataclasses import replace

import pytest

from paceline.facts import Job, Program, ProgramKind, RankExit, SecondaryStatus, Status
from paceline.launch.job.messages import (
    ExitedMessage,
    FinishMessage,
    IdleMessage,
    KillMessage,
    StartAttemptMessage,
    StopMessage,
    decode,
    encode,
)
from paceline.launch.job.outcome import Stop, StopKind
from paceline.launch.job.state import (
    Dismiss,
    HostJoined,
    HostLeaves,
    HostLeft,
    HostSaid,
    Hung,
    JobPhase,
    JobState,
    Member,
    ReportRestart,
    ReportWaiting,
    StopRequested,
    Tick,
    begin,
    step,
)

CTRL_C = Stop(StopKind.SIGNAL, "SIGINT", "Ctrl-C at the agent")


def idle(at: float, host: str, attempt: int) -> HostSaid:
    return HostSaid(at, host, IdleMessage(attempt=attempt))


def a_job(**changes) -> Job:
    return Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target="t.py"), **changes)


def play(state: JobState, *events):
    """The state after the events, and the actions of the last one."""
    actions = ()
    for event in events:
        state, actions = step(state, event)
    return state, actions


def member(host: str, node_rank: int | None = None, ranks: int = 2) -> Member:
    return Member(host=host, address="127.0.0.1", ranks=ranks, node_rank=node_rank)


def exited(host: str, rank: int, code: int, at: float = 10.0, attempt: int = 0) -> HostSaid:
    return HostSaid(
        at, host, ExitedMessage(exit=RankExit(host=host, rank=rank, attempt=attempt, code=code, time_ns=int(at * 1e9)))
    )


def running(hosts: int = 2, **terms) -> JobState:
    terms = {"min_hosts": hosts, "max_hosts": hosts, **terms}
    joined = [HostJoined(0.0, member(f"h{number}", number)) for number in range(hosts)]
    state, actions = play(begin(a_job(**terms), 0.0), *joined)
    assert isinstance(actions[0], StartAttemptMessage)
    return state


def test_a_job_forms_when_every_host_has_joined_and_not_before():
    state, actions = play(begin(a_job(min_hosts=2, max_hosts=2), 0.0), HostJoined(0.0, member("h1", 1)))
    assert actions == () and state.phase is JobPhase.WAITING
    state, (form,) = step(state, HostJoined(1.0, member("h0", 0)))
    assert form.world_size == 4 and state.phase is JobPhase.RUNNING


def test_ranks_are_placed_by_node_rank_and_not_by_arrival():
    state = begin(a_job(min_hosts=2, max_hosts=2), 0.0)
    _, (form,) = play(state, HostJoined(0.0, member("late", 1, ranks=3)), HostJoined(0.0, member("first", 0)))
    assert [(p.host, p.node_rank, p.first_rank, p.ranks) for p in form.placements] == [
        ("first", 0, 0, 2),
        ("late", 1, 2, 3),
    ]


def test_without_node_ranks_arrival_places():
    state = begin(a_job(min_hosts=2, max_hosts=2), 0.0)
    _, (form,) = play(state, HostJoined(0.0, member("a")), HostJoined(0.0, member("b")))
    assert [p.host for p in form.placements] == ["a", "b"]


def test_missing_hosts_are_said_after_5_seconds_and_then_every_30():
    state = begin(a_job(min_hosts=2, max_hosts=2), 0.0)
    said = []
    for second in range(70):
        state, actions = step(state, Tick(float(second)))
        said += [second for action in actions if isinstance(action, ReportWaiting)]
    assert said == [5, 35, 65]


def test_hosts_that_never_come_end_the_job_with_201():
    state, _ = step(
        begin(a_job(min_hosts=2, max_hosts=2, join_timeout_seconds=60), 0.0), HostJoined(0.0, member("h0", 0))
    )
    _, (finish,) = step(state, Tick(60.0))
    assert finish.outcome.exit_code == 201


def test_an_elastic_job_forms_with_the_least_number_after_the_last_call():
    state, _ = step(begin(a_job(min_hosts=1, max_hosts=2, last_call_seconds=30), 0.0), HostJoined(0.0, member("h0")))
    state, actions = step(state, Tick(29.0))
    assert actions == ()
    state, (form,) = step(state, Tick(30.0))
    assert form.world_size == 2


def test_one_failure_stops_the_whole_group():
    state, (stop,) = step(running(), exited("h1", 2, 1))
    assert (
        stop == StopMessage(signal="SIGTERM", grace_seconds=30.0, reason="rank 2 failed", after_failure=True)
        and state.phase is JobPhase.STOPPING
    )


def test_the_run_ends_with_the_failing_ranks_own_code_once_every_host_is_idle():
    state, _ = play(running(), exited("h1", 2, 7), idle(11.0, "h1", 0))
    assert state.phase is JobPhase.STOPPING
    _, (finish,) = step(state, idle(11.0, "h0", 0))
    assert finish.outcome.exit_code == 7 and finish.outcome.status is Status.FAILED


def test_every_rank_at_0_completes_the_run():
    events = [exited(f"h{rank // 2}", rank, 0) for rank in range(4)]
    _, (finish,) = play(running(), *events, idle(11.0, "h0", 0), idle(11.0, "h1", 0))
    assert finish.outcome.exit_code == 0 and finish.outcome.secondary_status is SecondaryStatus.COMPLETED


def stopped_by_us(host: str, rank: int) -> HostSaid:
    exit = exited(host, rank, -15)
    message = ExitedMessage(exit=replace(exit.message.exit, signalled_by_us=True))
    return replace(exit, message=message)


def test_a_job_of_parameter_servers_is_done_with_rank_0():
    state, (stop,) = step(running(tf_config="parameter_server"), exited("h0", 0, 0))
    assert stop == StopMessage(
        signal="SIGTERM", grace_seconds=30.0, reason="rank 0, the chief, has ended", after_failure=True
    )
    others = (stopped_by_us("h0", 1), stopped_by_us("h1", 2), stopped_by_us("h1", 3))
    _, (finish,) = play(state, *others, idle(11.0, "h0", 0), idle(11.0, "h1", 0))
    assert finish.outcome.exit_code == 0 and finish.outcome.secondary_status is SecondaryStatus.COMPLETED


@pytest.mark.parametrize("form", ["parameter_server", "multi_worker_mirrored", None])
def test_a_rank_that_fails_before_rank_0_has_ended_fails_the_job(form):
    state, _ = play(running(tf_config=form), exited("h1", 2, 1), exited("h0", 0, 0))
    others = (stopped_by_us("h0", 1), stopped_by_us("h1", 3))
    _, (finish,) = play(state, *others, idle(11.0, "h0", 0), idle(11.0, "h1", 0))
    assert finish.outcome.exit_code == 1 and "rank 2" in finish.outcome.reason


def test_rank_0_of_other_jobs_is_waited_for_like_any_rank():
    assert step(running(), exited("h0", 0, 0))[1] == ()


def test_a_restart_takes_the_whole_group_and_a_new_attempt():
    state, actions = play(
        running(max_restarts=1),
        exited("h1", 2, 1),
        idle(11, "h0", 0),
        idle(11, "h1", 0),
    )
    said, form = actions
    assert isinstance(said, ReportRestart) and said.restarts_left == 0
    assert isinstance(form, StartAttemptMessage) and form.attempt == 1 and form.world_size == 4
    assert state.exits == () and state.idle == frozenset()


def test_the_budget_of_restarts_is_a_limit():
    state = running(max_restarts=1)
    state, _ = play(
        state,
        exited("h1", 2, 1),
        idle(11, "h0", 0),
        idle(11, "h1", 0),
    )
    _, (finish,) = play(
        state,
        exited("h1", 2, 9, attempt=1),
        idle(12, "h0", 1),
        idle(12, "h1", 1),
    )
    assert finish.outcome.exit_code == 9


def test_what_comes_late_from_an_earlier_attempt_is_ignored():
    state, _ = play(
        running(max_restarts=1),
        exited("h1", 2, 1),
        idle(11, "h0", 0),
        idle(11, "h1", 0),
    )
    assert step(state, exited("h1", 3, -15, attempt=0)) == (state, ())
    assert step(state, idle(12, "h0", 0)) == (state, ())


def test_a_lost_host_ends_a_fixed_job_with_200():
    state, (stop,) = step(running(), HostLeft(5.0, "h1", "its agent is gone"))
    assert isinstance(stop, StopMessage)
    _, (finish,) = step(state, idle(6.0, "h0", 0))
    assert finish.outcome.exit_code == 200 and "h1" in finish.outcome.reason


def test_an_elastic_job_goes_on_at_the_smaller_size_when_a_host_is_lost():
    state = running(min_hosts=1, max_restarts=1)
    state, _ = step(state, HostLeft(5.0, "h1", "gone"))
    _, (_said, form) = step(state, idle(6.0, "h0", 0))
    assert form.world_size == 2 and form.attempt == 1


def test_a_returning_host_is_taken_at_the_next_restart_and_not_before():
    state = running(min_hosts=1, max_restarts=2)
    state, _ = play(state, HostLeft(5.0, "h1", "gone"), idle(6.0, "h0", 0))
    state, actions = step(state, HostJoined(7.0, member("h1", 1)))
    assert actions == ()
    _, (_, form) = play(state, exited("h0", 0, 1, attempt=1), idle(9.0, "h0", 1))
    assert form.world_size == 4


def test_a_host_that_leaves_after_all_its_ranks_ended_well_is_no_loss():
    state, _ = play(running(), exited("h1", 2, 0), exited("h1", 3, 0), idle(6.0, "h1", 0))
    state, actions = step(state, HostLeft(7.0, "h1", "gone"))
    assert actions == () and state.phase is JobPhase.RUNNING


def test_ctrl_c_is_graceful_once_and_now_the_second_time():
    state, (stop,) = step(running(), StopRequested(5.0, CTRL_C))
    assert stop == StopMessage(signal="SIGINT", grace_seconds=120.0, reason=CTRL_C.reason)
    state, (kill,) = step(state, StopRequested(6.0, CTRL_C, now=True))
    assert isinstance(kill, KillMessage)
    _, (finish,) = play(state, idle(7, "h0", 0), idle(7, "h1", 0))
    assert finish.outcome.exit_code == 130 and finish.outcome.status is Status.STOPPED


def test_a_stop_during_a_restart_ends_the_job_without_one():
    state, _ = play(running(max_restarts=5), exited("h1", 2, 1), StopRequested(10.5, CTRL_C))
    _, (finish,) = play(state, idle(11, "h0", 0), idle(11, "h1", 0))
    assert finish.outcome.exit_code == 130


def test_the_limit_sends_sigterm_and_gives_the_grace():
    state, actions = step(running(max_run_seconds=100.0), Tick(99.0))
    assert actions == ()
    state, (stop,) = step(state, Tick(100.0))
    assert (stop.signal, stop.grace_seconds) == ("SIGTERM", 120.0)
    _, (finish,) = play(state, idle(101, "h0", 0), idle(101, "h1", 0))
    assert finish.outcome.exit_code == 204
    assert finish.outcome.secondary_status is SecondaryStatus.MAX_RUNTIME_EXCEEDED


def test_the_limit_counts_over_restarts():
    state = running(max_restarts=3, max_run_seconds=100.0)
    state, _ = play(
        state,
        exited("h1", 2, 1, at=90),
        idle(91, "h0", 0),
        idle(91, "h1", 0),
    )
    _, (stop,) = step(state, Tick(100.0))
    assert isinstance(stop, StopMessage)


def test_a_confirmed_hang_ends_the_job_with_202():
    state = running(hosts=1)
    state, actions = step(state, Hung(20.0, "rank 1 has stood still", restart=False))
    assert actions == (
        StopMessage(signal="SIGTERM", grace_seconds=10.0, reason="rank 1 has stood still", after_failure=True),
    )
    state, actions = play(state, exited("h0", 0, -15), exited("h0", 1, -9), idle(31.0, "h0", 0))
    assert actions[-1].outcome.exit_code == 202
    assert actions[-1].outcome.reason == "rank 1 has stood still"


def test_a_confirmed_hang_restarts_the_job_even_if_its_ranks_then_end_with_0():
    state = running(hosts=1, max_restarts=1)
    state, _ = step(state, Hung(20.0, "rank 1 has stood still", restart=True))
    state, actions = play(state, exited("h0", 0, 0), exited("h0", 1, 0), idle(21.0, "h0", 0))
    assert [type(action) for action in actions] == [ReportRestart, StartAttemptMessage]
    assert actions[0].reason == "rank 1 has stood still"
    state, _ = step(state, Hung(40.0, "again", restart=True))
    state, actions = play(state, idle(41.0, "h0", 1))
    assert actions[-1].outcome.exit_code == 202


def test_a_hang_of_a_job_that_ends_already_changes_nothing():
    state, _ = play(running(hosts=1), exited("h0", 0, 1))
    assert step(state, Hung(20.0, "late", restart=False)) == (state, ())


def test_nothing_happens_after_the_end():
    state, (finish,) = play(
        running(),
        exited("h0", 0, 1),
        idle(11, "h0", 0),
        idle(11, "h1", 0),
    )
    assert isinstance(finish, FinishMessage)
    assert step(state, StopRequested(12.0, CTRL_C)) == (state, ())
    assert step(state, Tick(500.0)) == (state, ())


def test_a_stop_while_hosts_are_missing_ends_at_once():
    state = begin(a_job(min_hosts=2, max_hosts=2), 0.0)
    _, (finish,) = step(state, StopRequested(1.0, replace(CTRL_C, signal="SIGTERM")))
    assert finish.outcome.exit_code == 204 and finish.outcome.secondary_status is SecondaryStatus.INTERRUPTED


def test_a_job_is_not_done_while_a_rank_has_not_said_how_it_ended():
    events = [exited(f"h{rank // 2}", rank, 0) for rank in range(3)]
    _, (finish,) = play(running(), *events, idle(11.0, "h0", 0), idle(11.0, "h1", 0))
    assert finish.outcome.exit_code == 200 and "h1" in finish.outcome.reason


def test_a_host_speaks_for_its_own_ranks_only():
    state = running()
    assert step(state, exited("h1", 0, 1)) == (state, ())
    assert step(state, exited("guest", 0, 1)) == (state, ())
    assert step(state, idle(5.0, "guest", 0)) == (state, ())


HOSTS = ("h0", "h1", "h2", "h3", "h4")


ELASTIC = {"min_hosts": 1, "max_hosts": 2, "max_restarts": 0}


def test_a_host_that_leaves_an_elastic_job_costs_the_others_no_restart():
    state, actions = play(running(2, **ELASTIC), HostLeaves(5.0, "h1", CTRL_C))
    assert state.phase is JobPhase.STOPPING
    assert actions == (StopMessage(signal="SIGINT", grace_seconds=state.job.stop_grace_seconds, reason=CTRL_C.reason),)
    state, actions = play(state, exited("h0", 0, -2), exited("h1", 2, -2), idle(8.0, "h0", 0))
    assert not actions
    state, (said, dismissed, form) = play(state, idle(9.0, "h1", 0))
    assert (said.reason, said.restarts_left) == ("host h1 left: Ctrl-C at the agent", 0)
    assert (dismissed.host, dismissed.outcome.exit_code, dismissed.outcome.status) == ("h1", 130, Status.STOPPED)
    assert [placement.host for placement in form.placements] == ["h0"]
    # It may come back, and has a place in the next attempt.
    state, actions = play(state, HostLeft(9.1, "h1", "ended"), HostJoined(12.0, member("h1")))
    assert not actions and state.phase is JobPhase.RUNNING and len(state.members) == 2


def test_a_host_that_waits_may_leave_an_elastic_job_at_once():
    state = play(running(2, **ELASTIC), HostJoined(3.0, member("h2")))[0]
    state, actions = play(state, HostLeaves(4.0, "h2", CTRL_C))
    assert [action.host for action in actions] == ["h2"] and isinstance(actions[0], Dismiss)
    assert state.phase is JobPhase.RUNNING


def test_where_too_few_hosts_are_left_the_job_waits_for_one_to_come_back():
    terms = {"min_hosts": 2, "max_hosts": 3}
    state = play(running(3, **terms), HostLeaves(5.0, "h1", CTRL_C), HostLeaves(5.1, "h2", CTRL_C))[0]
    state, actions = play(state, *(idle(9.0, f"h{number}", 0) for number in range(3)))
    assert [type(action) for action in actions] == [ReportRestart, Dismiss, Dismiss]
    state, actions = play(state, HostJoined(20.0, member("h9")))
    assert isinstance(actions[0], StartAttemptMessage) and state.phase is JobPhase.RUNNING


def test_a_second_signal_at_a_host_that_leaves_kills_its_attempt_and_not_the_job():
    state, actions = play(running(2, **ELASTIC), HostLeaves(5.0, "h1", CTRL_C), HostLeaves(6.0, "h1", CTRL_C, now=True))
    assert actions == (KillMessage(reason=CTRL_C.reason),) and state.stop is None


def test_a_job_of_fixed_size_ends_with_a_signal_at_any_of_its_hosts():
    state, actions = play(running(2), HostLeaves(5.0, "h1", CTRL_C))
    assert state.stop == CTRL_C and isinstance(actions[0], StopMessage)


def test_a_stop_of_the_job_wins_over_a_host_that_leaves():
    state = play(running(2, **ELASTIC), HostLeaves(5.0, "h1", CTRL_C), StopRequested(6.0, CTRL_C))[0]
    _, actions = play(state, idle(9.0, "h0", 0), idle(9.0, "h1", 0))
    assert isinstance(actions[0], FinishMessage) and actions[0].outcome.exit_code == 130


def any_event(chance: random.Random, at: float, attempt: int):
    host = chance.choice(HOSTS)
    attempt = chance.choice([attempt, attempt, attempt, attempt - 1, attempt + 1])
    code = chance.choice([0, 0, 0, 1, -9, 202])
    return chance.choice(
        [
            HostJoined(at, member(host, chance.choice([None, None, 0, 3]), ranks=chance.choice([1, 2, 3]))),
            HostLeft(at, host, "gone"),
            exited(host, chance.randrange(8), code, at, attempt),
            exited(host, chance.randrange(8), code, at, attempt),
            idle(at, host, attempt),
            idle(at, host, attempt),
            StopRequested(at, CTRL_C, now=chance.random() < 0.5) if chance.random() < 0.1 else Tick(at),
            HostLeaves(at, host, CTRL_C, now=chance.random() < 0.5) if chance.random() < 0.3 else Tick(at),
            Tick(at),
        ]
    )


@pytest.mark.parametrize("seed", range(300))
def test_whatever_comes_in_whatever_order_the_job_forms_at_a_size_it_allows_and_can_be_ended(seed):
    chance = random.Random(seed)
    least = chance.choice([1, 1, 2, 3])
    job = a_job(
        min_hosts=least,
        max_hosts=least + chance.choice([0, 1, 2]),
        max_restarts=chance.choice([0, 1, 5]),
        max_run_seconds=chance.choice([None, 200.0]),
        join_timeout_seconds=chance.choice([100.0, 1e9]),
    )
    state, at = begin(job, 1.0), 1.0
    for _ in range(200):
        at += chance.choice([0.0, 0.2, 5.0])
        before = state
        state, actions = step(state, any_event(chance, at, state.attempt))
        forms = [action for action in actions if isinstance(action, StartAttemptMessage)]
        for form in forms:
            assert decode(encode(form)) == form
            hosts = [placement.host for placement in form.placements]
            assert job.min_hosts <= len(hosts) <= job.max_hosts and len(set(hosts)) == len(hosts)
            assert set(hosts) <= {found.host for found in state.members}
            first_ranks = [placement.first_rank for placement in form.placements]
            assert first_ranks == [sum(p.ranks for p in form.placements[:n]) for n in range(len(hosts))]
            assert form.attempt == state.attempt
        finished = [action.outcome for action in actions if isinstance(action, FinishMessage)]
        assert len(forms) + len(finished) <= 1
        assert state.restarts_left <= before.restarts_left and state.attempt >= before.attempt
        assert (state.phase is JobPhase.ENDED) == (before.phase is JobPhase.ENDED or bool(finished))
        if finished and finished[0].exit_code == 0:
            assert len({exit.rank for exit in state.exits}) == sum(p.ranks for p in state.placements)
    state, _ = step(state, StopRequested(at, CTRL_C))
    for placement in state.placements:
        state, _ = step(state, idle(at, placement.host, state.attempt))
    assert state.phase is JobPhase.ENDED
