"""What a job does about killed ranks where every host keeps the state of its ranks. No clock, no process."""

import random

import pytest

from paceline.facts import Job, Program, ProgramKind, RankError, RankExit
from paceline.launch.job.messages import (
    ExitedMessage,
    FinishMessage,
    IdleMessage,
    KillMessage,
    StartAttemptMessage,
    StopMessage,
)
from paceline.launch.job.outcome import Stop, StopKind
from paceline.launch.job.state import (
    HostJoined,
    HostLeft,
    HostSaid,
    Hung,
    JobPhase,
    Member,
    ReportRestart,
    StopRequested,
    begin,
    step,
)

# Ranks 0 and 1 are on h0, rank 2 is on h1.
HOST_OF = {0: "h0", 1: "h0", 2: "h1"}


class Play:
    """A running job of three ranks on two hosts, and the actions of the last event."""

    def __init__(self, saved_step=None, *, is_named=True, **terms) -> None:
        job = Job(
            name="j",
            program=Program(kind=ProgramKind.SCRIPT, target="t.py"),
            **{"min_hosts": 2, "max_hosts": 2, "resume": True, **terms},
        )
        self.state, self.actions, self.at = begin(job, 0.0, saved_step, is_named=is_named), (), 0.0
        for number, (host, ranks) in enumerate((("h0", 2), ("h1", 1))):
            member = Member(host=host, address="127.0.0.1", ranks=ranks, node_rank=number)
            self.feed(HostJoined(0.0, member))

    def feed(self, event):
        self.at += 1.0
        self.state, self.actions = step(self.state, event)
        return self

    def exits(self, rank, code=-9, *, at=None, resumable=None, attempt=None, **more):
        attempt = self.state.attempt if attempt is None else attempt
        time_ns = int((self.at if at is None else at) * 1e9)
        exit = RankExit(host=HOST_OF[rank], rank=rank, attempt=attempt, code=code, time_ns=time_ns, **more)
        return self.feed(
            HostSaid(
                self.at, exit.host, ExitedMessage(exit=exit, resumable=code < 0 if resumable is None else resumable)
            )
        )

    def dies_for_memory(self, rank):
        exit = RankExit(host=HOST_OF[rank], rank=rank, attempt=self.state.attempt, code=-9, time_ns=int(self.at * 1e9))
        return self.feed(HostSaid(self.at, exit.host, ExitedMessage(exit=exit, resumable=True, out_of_memory=True)))

    def idle(self, host, kept, step_count=0):
        return self.feed(
            HostSaid(self.at, host, IdleMessage(attempt=self.state.attempt, kept=kept, step_count=step_count))
        )

    def all_idle(self, *steps, step_count=0):
        """Both hosts are idle. `steps`: the kept steps of ranks 0, 1 and 2."""
        self.idle("h0", {0: steps[0], 1: steps[1]}, step_count)
        return self.idle("h1", {2: steps[2]}, step_count)

    def dies(self, *steps, rank=1):
        """A rank is killed, all others with it."""
        return self.exits(rank).all_idle(*steps)

    @property
    def kinds(self):
        return [type(action) for action in self.actions]

    @property
    def outcome(self):
        (finish,) = self.actions
        assert isinstance(finish, FinishMessage)
        return finish.outcome


def test_a_killed_rank_makes_all_ranks_end_at_once_and_go_on_at_the_newest_common_step():
    play = Play().exits(2)
    assert (
        play.actions == (KillMessage(reason="rank 2 was killed", at_once=True),)
        and play.state.phase is JobPhase.STOPPING
    )
    # The ranks that we killed are no second failure.
    assert play.exits(0, signalled_by_us=True, resumable=False).actions == ()
    play.all_idle((7, 6), (6, 5), (7, 6), step_count=8)
    said, form = play.actions
    assert isinstance(said, ReportRestart) and isinstance(form, StartAttemptMessage)
    assert (form.attempt, form.resume_step, form.world_size) == (1, 6, 3)
    assert (said.resume.step, said.resume.cause.rank, said.resume.step_count) == (6, 2, 8)
    assert "was ended by SIGKILL" in said.reason


def test_a_job_that_is_given_a_saved_step_begins_there_and_again_there_after_a_kill():
    play = Play(saved_step=40)
    assert play.actions[-1].resume_step == 40 and play.actions[-1].attempt == 0
    play.dies((40,), (40,), (40,))
    assert play.actions[-1].resume_step == 40 and play.state.resume.cause.rank == 1
    play.dies((43, 42), (43, 42), (42,))
    assert play.actions[-1].resume_step == 42


def test_a_saved_state_that_cannot_be_put_back_ends_the_job_before_it_trains_from_the_start():
    play = Play(saved_step=40, max_restarts=3).exits(1, 205, not_put_back=True, resumable=False)
    assert play.kinds == [KillMessage]
    play.all_idle((40,), (40,), (40,))
    assert (play.outcome.exit_code, play.outcome.finding.code) == (205, "F05")
    assert "step 40" in play.outcome.reason


def test_a_saved_state_that_nobody_named_and_that_cannot_be_put_back_makes_the_job_begin_at_the_start():
    play = Play(saved_step=40, is_named=False).exits(1, 205, not_put_back=True, resumable=False)
    said, form = play.all_idle((40,), (40,), (40,)).actions
    assert "could not be put back" in said.reason and "(F05)" in said.reason
    assert (form.attempt, form.resume_step, form.keeps_state) == (1, None, False)


def test_a_resume_uses_up_no_restart():
    play = Play(max_restarts=1)
    for kept in range(5, 30):
        play.dies((kept,), (kept,), (kept,))
        assert play.kinds == [ReportRestart, StartAttemptMessage] and play.state.restarts_left == 1


@pytest.mark.parametrize("signal", [6, 9, 11, 15])
def test_every_signal_that_we_did_not_send_is_a_reason_to_resume(signal):
    play = Play().exits(0, -signal).all_idle((3,), (3,), (3,))
    assert play.actions[-1].resume_step == 3


def test_without_the_option_a_killed_rank_is_a_failure_like_any_other():
    play = Play(resume=False, max_restarts=1).exits(2)
    assert play.kinds == [StopMessage]
    play.all_idle((7,), (7,), (7,))
    assert play.actions[-1].resume_step is None and play.state.restarts_left == 0


def test_an_exception_of_the_script_is_no_reason_to_resume():
    play = Play(max_restarts=1).exits(1, 1)
    assert play.kinds == [StopMessage]
    play.exits(0, -15, resumable=False, signalled_by_us=True).all_idle((7,), (7,), (7,))
    said, form = play.actions
    assert form.resume_step is None and said.resume is None and play.state.restarts_left == 0


def test_a_killed_loader_worker_is_a_killed_rank():
    error = RankError(type="RuntimeError", message="DataLoader worker (pid(s) 7) exited unexpectedly", time_ns=int(9e9))
    lost = RankError(type="RuntimeError", message="Connection reset by peer", time_ns=int(9.1e9))
    # The rank that lost its peer is judged first.
    play = Play(max_restarts=1).exits(0, 1, at=10.0, error=lost)
    assert play.kinds == [StopMessage]
    play.exits(1, 1, at=9.5, error=error, resumable=True)
    assert play.actions == (KillMessage(reason="rank 1 lost a loader worker", at_once=True),)
    play.exits(2, -9, resumable=False, signalled_by_us=True).all_idle((7,), (7,), (7,), step_count=7)
    said, form = play.actions
    assert (form.resume_step, said.resume.cause.rank, play.state.restarts_left) == (7, 1, 1)


def test_a_loader_worker_that_dies_three_times_at_one_step_is_the_script():
    play = Play(max_restarts=5)
    for _ in range(2):
        assert play.exits(1, 1, resumable=True).all_idle((7,), (7,), (7,)).actions[-1].resume_step == 7
    outcome = play.exits(1, 1, resumable=True).all_idle((7,), (7,), (7,)).outcome
    assert outcome.exit_code == 1 and "(F07)" in outcome.reason


def test_a_loader_worker_that_is_killed_before_the_state_is_put_back_is_a_kill_too():
    play = Play().dies((7,), (7,), (7,)).exits(0, 205, not_put_back=True, resumable=True)
    assert play.all_idle((7,), (7,), (7,)).actions[-1].resume_step == 7


def test_an_exception_without_a_restart_left_ends_the_job_with_its_code():
    assert Play().exits(1, 7).all_idle((7,), (7,), (7,)).outcome.exit_code == 7


@pytest.mark.parametrize(
    ("killed_at", "killed_first"),
    [(9.9, True), pytest.param(10.9, True, id="a busy agent sees it late"), (11.1, False)],
)
def test_of_two_exits_that_come_together_the_first_one_by_time_counts(killed_at, killed_first):
    # The exit of the rank that lost its peer arrives first: it is on the coordinator's own host.
    play = Play(max_restarts=1).exits(0, 1, at=10.0)
    assert play.kinds == [StopMessage]
    play.exits(2, -9, at=killed_at)
    assert play.kinds == ([KillMessage] if killed_first else [])
    play.all_idle((7,), (7,), (7,))
    assert play.actions[-1].resume_step == (7 if killed_first else None)


def test_a_rank_that_only_lost_its_peer_is_never_the_first():
    lost = RankError(type="RuntimeError", message="Connection reset by peer", time_ns=int(9.8e9))
    play = Play().exits(0, 1, at=10.0, error=lost).exits(2, -9, at=9.9).all_idle((7,), (7,), (7,))
    assert play.actions[-1].resume_step == 7


def test_what_is_judged_of_an_exit_later_replaces_what_was_said_at_once():
    play = Play().exits(2, at=10.0).exits(2, at=10.0, note="killed by nobody", resumable=False)
    assert play.actions == () and [exit.note for exit in play.state.exits] == ["killed by nobody"]
    play.all_idle((7,), (7,), (7,))
    assert play.actions[-1].resume_step == 7
    before = play.state
    assert play.exits(2, attempt=0).state == before, "an attempt that is over"


def test_a_host_that_keeps_no_state_makes_it_an_ordinary_restart():
    play = Play(max_restarts=1).exits(2).idle("h0", {0: (7,), 1: (7,)}).idle("h1", None)
    assert play.actions[-1].resume_step is None and play.state.restarts_left == 0
    assert Play().exits(2).idle("h0", None).idle("h1", {2: (7,)}).outcome.exit_code == 137


def test_a_rank_of_which_nothing_is_said_has_kept_nothing():
    play = Play(max_restarts=1).exits(2).idle("h0", {0: (7,)}).idle("h1", {2: (7,)})
    assert play.actions[-1].resume_step is None


def test_three_deaths_at_one_step_are_the_script():
    play = Play(max_restarts=5)
    for _ in range(2):
        assert play.dies((7, 6), (7, 6), (7, 6)).actions[-1].resume_step == 7
    outcome = play.exits(0, -11).all_idle((7, 6), (7, 6), (7, 6)).outcome
    assert outcome.exit_code == 139 and "step 7 failed 3 times: it is the script (F07)" in outcome.reason


def test_a_new_common_step_begins_the_count_of_deaths_anew():
    play = Play()
    for kept in (7, 7, 8, 8, 9, 9):
        assert play.dies((kept,), (kept,), (kept,)).actions[-1].resume_step == kept
    assert play.dies((9,), (9,), (9,)).outcome.exit_code == 137


def test_a_step_before_the_one_that_was_resumed_is_no_progress():
    play = Play().dies((7, 6), (7, 6), (7, 6)).dies((6,), (7, 6), (7, 6))
    assert play.actions[-1].resume_step == 6
    assert "F07" in play.dies((6,), (6,), (6,)).outcome.reason


def test_a_death_before_the_first_kept_step_costs_a_restart_and_without_one_it_begins_again():
    play = Play(max_restarts=1).dies((1,), (1,), ())
    assert play.actions[-1].resume_step is None and play.state.restarts_left == 0
    for _ in range(3):
        play.dies((), (), ())
        said, form = play.actions
        assert form.resume_step is None and said.resume is None and "begins again from the beginning" in said.reason
    assert play.dies((), (), ()).outcome.exit_code == 137


def test_a_beginning_after_steps_were_made_is_not_said_to_cost_nothing():
    said, _ = Play().exits(1).all_idle((), (), (), step_count=1).actions
    assert said.reason.endswith("no step is kept that all ranks can go on from: 1 step made again")


def test_a_rank_that_was_killed_for_memory_is_resumed_once():
    play = Play().dies_for_memory(1).all_idle((7,), (7,), (7,))
    assert play.actions[-1].resume_step == 7
    outcome = play.dies_for_memory(1).all_idle((90,), (90,), (90,)).outcome
    assert outcome.exit_code == 137 and "memory" in outcome.reason
    spared = Play(max_restarts=1).dies_for_memory(1).all_idle((7,), (7,), (7,)).dies_for_memory(0)
    assert spared.all_idle((9,), (9,), (9,)).actions[-1].resume_step is None


def test_a_request_to_stop_stays_one():
    stop = Stop(StopKind.SIGNAL, "SIGINT", "Ctrl-C")
    play = Play().feed(StopRequested(1.0, stop)).exits(1, -2, resumable=True)
    assert play.actions == ()
    assert play.all_idle((7,), (7,), (7,)).outcome.exit_code == 130
    late = Play().exits(1).feed(StopRequested(1.0, stop)).all_idle((7,), (7,), (7,))
    assert late.outcome.exit_code == 130


def test_a_hang_is_restarted_as_without_the_option():
    play = Play(max_restarts=1).feed(Hung(1.0, "it hangs", restart=True)).exits(1, -9).all_idle((7,), (7,), (7,))
    assert play.actions[-1].resume_step is None and play.state.restarts_left == 0


def hangs(play, *ranks):
    return play.feed(Hung(1.0, "it hangs", restart=True, resume=True, ranks=ranks))


def killed_by_us(play, *steps, step_count=0):
    """All ranks end by our SIGKILL. `steps`: what each rank has kept."""
    for rank in range(3):
        play.exits(rank, -9, resumable=False, signalled_by_us=True)
    return play.all_idle(*steps, step_count=step_count)


def test_a_hang_is_a_kill_where_that_was_asked_for():
    play = hangs(Play(max_restarts=1), 2)
    assert play.actions == (KillMessage(reason="it hangs", at_once=True),)
    killed_by_us(play, (7, 6), (6, 5), (7, 6), step_count=8)
    said, form = play.actions
    assert (form.attempt, form.resume_step, said.restarts_left, said.reason) == (1, 6, 1, "it hangs")
    assert (said.resume.step, said.resume.cause.rank, said.resume.step_count, said.resume.hung) == (6, 2, 8, True)


def test_three_hangs_at_one_step_are_the_script_and_end_the_job_with_202():
    play = Play(max_restarts=5)
    for _ in range(2):
        assert killed_by_us(hangs(play, 1), (7,), (7,), (7,)).actions[-1].resume_step == 7
    outcome = killed_by_us(hangs(play, 1), (7,), (7,), (7,)).outcome
    assert outcome.exit_code == 202 and outcome.finding.code == "F07"
    assert outcome.reason == "it hangs; step 7 failed 3 times: it is the script (F07)"


def test_a_hang_and_a_kill_at_one_step_count_together():
    play = Play().dies((7,), (7,), (7,))
    killed_by_us(hangs(play, 0), (7,), (7,), (7,))
    assert play.dies((7,), (7,), (7,)).outcome.exit_code == 137


@pytest.mark.parametrize("kept", [((), (), ()), None])
def test_a_hang_before_a_step_was_kept_costs_a_restart_and_without_one_ends_the_job_with_202(kept):
    def all_end(play):
        return play.idle("h0", None).idle("h1", None) if kept is None else killed_by_us(play, *kept)

    play = all_end(hangs(Play(max_restarts=1), 1))
    assert play.actions[-1].resume_step is None and play.state.restarts_left == 0
    assert all_end(hangs(play, 1)).outcome.exit_code == 202


def test_a_hang_of_a_job_that_keeps_no_more_state_is_a_restart():
    play = Play(max_restarts=1).dies((7,), (7,), (7,)).exits(0, 205, not_put_back=True).all_idle((7,), (7,), (7,))
    assert not play.actions[-1].keeps_state and hangs(play, 1).kinds == [StopMessage]


def test_a_stop_and_a_lost_host_go_before_a_hang():
    play = hangs(Play(), 1).feed(StopRequested(1.0, Stop(StopKind.SIGNAL, "SIGINT", "Ctrl-C")))
    assert killed_by_us(play, (7,), (7,), (7,)).outcome.exit_code == 130
    play = hangs(Play(), 1).feed(HostLeft(1.0, "h1", "gone"))
    assert play.idle("h0", {0: (7,), 1: (7,)}).outcome.exit_code == 202


def test_a_lost_host_is_a_lost_host():
    play = Play().feed(HostLeft(1.0, "h1", "gone"))
    assert play.kinds == [StopMessage]
    assert play.exits(1, -9).idle("h0", {0: (7,), 1: (7,)}).outcome.exit_code == 200


def test_a_host_that_leaves_while_its_ranks_are_killed_makes_it_an_ordinary_failure():
    play = Play().exits(0).feed(HostLeft(1.0, "h1", "gone")).idle("h0", {0: (7,), 1: (7,)})
    assert play.outcome.exit_code == 137


def test_other_hosts_than_those_that_keep_the_state_begin_at_the_start():
    play = Play(max_restarts=1).exits(2).idle("h0", {0: (7,), 1: (7,)})
    members = tuple(member for member in play.state.members if member.host != "h0")
    newcomer = Member(host="h9", address="127.0.0.9", ranks=2, node_rank=0)
    play.state, _ = step(play.state, HostJoined(1.0, newcomer))
    assert members
    play.idle("h1", {2: (7,)})
    form = play.actions[-1]
    assert isinstance(form, StartAttemptMessage)
    assert form.resume_step == (7 if [p.host for p in form.placements] == ["h0", "h1"] else None)


def test_a_state_that_is_not_the_kept_one_ends_the_job_with_205_also_with_restarts_left():
    play = Play(max_restarts=3).dies((7,), (7,), (7,)).exits(0, 205, state_mismatch=True)
    assert play.kinds == [StopMessage]
    outcome = play.exits(1, 1).all_idle((7,), (7,), (7,)).outcome
    assert outcome.exit_code == 205 and "F03" in outcome.reason and outcome.exits[0].rank == 0


def test_a_state_that_cannot_be_put_back_makes_the_job_begin_again_and_keep_no_more():
    play = Play(max_restarts=1).dies((7,), (7,), (7,)).exits(0, 205, not_put_back=True)
    assert play.actions == (KillMessage(reason="the state of rank 0 could not be put back", at_once=True),)
    assert play.exits(1, 205, not_put_back=True).actions == ()
    play.exits(2, -9, resumable=False, signalled_by_us=True).all_idle((7,), (7,), (7,))
    said, form = play.actions
    assert said.reason == (
        "the state of step 7 could not be put back: the job begins again from the beginning, and keeps no more state (F05)"
    )
    assert (form.attempt, form.resume_step, form.keeps_state) == (2, None, False)
    assert said.resume is None and play.state.restarts_left == said.restarts_left == 1
    # From here on it is a job without resuming: a killed rank costs a restart, and without one left the job ends.
    assert play.exits(1).kinds == [StopMessage]
    play.idle("h0", None).idle("h1", None)
    assert not play.actions[-1].keeps_state and play.state.restarts_left == 0
    assert play.exits(1).idle("h0", None).idle("h1", None).outcome.exit_code == 137


def test_a_rank_that_is_killed_before_the_state_is_put_back_makes_the_others_no_ranks_that_cannot():
    lost = RankError(type="RuntimeError", message="Connection reset by peer", time_ns=int(9.8e9))
    play = Play().dies((7,), (7,), (7,)).exits(0, 205, at=10.0, error=lost, not_put_back=True)
    assert play.kinds == [KillMessage]
    play.exits(2, -9, at=9.9).all_idle((7,), (7,), (7,))
    assert play.actions[-1].resume_step == 7 and play.actions[-1].keeps_state


def test_nothing_is_put_back_in_a_job_that_has_not_resumed():
    play = Play().exits(0, 205, not_put_back=True)
    assert play.kinds == [StopMessage]
    assert play.all_idle((7,), (7,), (7,)).outcome.exit_code == 1


def test_a_request_to_stop_and_a_lost_host_go_before_a_state_that_cannot_be_put_back():
    play = Play().dies((7,), (7,), (7,)).feed(StopRequested(1.0, Stop(StopKind.SIGNAL, "SIGINT", "Ctrl-C")))
    assert play.exits(0, 205, not_put_back=True).actions == ()
    assert play.all_idle((7,), (7,), (7,)).outcome.exit_code == 130
    play = Play().dies((7,), (7,), (7,)).feed(HostLeft(1.0, "h1", "gone")).exits(0, 205, not_put_back=True)
    assert play.idle("h0", {0: (7,), 1: (7,)}).outcome.exit_code == 200


def test_a_205_of_the_script_is_1():
    assert Play().exits(0, 205).all_idle((7,), (7,), (7,)).outcome.exit_code == 1


def test_whatever_happens_an_attempt_goes_on_only_from_a_step_that_all_ranks_have_kept():
    resumed = 0
    for seed in range(300):
        chance = random.Random(seed)
        play, said = Play(max_restarts=chance.randrange(3)), {}
        for _ in range(40):
            kept = {rank: tuple(sorted(chance.sample(range(1, 5), 2), reverse=True)) for rank in range(3)}
            of_host = {"h0": {0: kept[0], 1: kept[1]}, "h1": {2: kept[2]}}
            match chance.randrange(4):
                case 0:
                    play.exits(chance.randrange(3), chance.choice([-9, -11, 1, 0]))
                case 1:
                    play.dies_for_memory(chance.randrange(3))
                case _:
                    host = chance.choice(("h0", "h1"))
                    said |= of_host[host]
                    play.idle(host, of_host[host])
            for form in (action for action in play.actions if isinstance(action, StartAttemptMessage)):
                resumed += form.resume_step is not None
                assert form.resume_step is None or all(form.resume_step in said[rank] for rank in range(3))
                assert play.state.exits == () and play.state.killed == frozenset() and play.state.kept == {}
                said = {}
            if play.state.phase is JobPhase.ENDED:
                assert play.kinds == [FinishMessage]
                break
    assert resumed > 100
