"""Which rank failed first, and which exit code a run has."""

import signal
from dataclasses import replace

import pytest

from paceline.diagnosis.crash.root_cause import SAVED_AND_LEFT, by_blame, how_it_ended
from paceline.facts import RankError, RankExit
from paceline.launch.job.messages import FinishMessage, decode, encode
from paceline.launch.job.outcome import Stop, StopKind, failed, failed_step, run_code, stopped


def exited(
    rank: int, code: int, at: float, error: tuple[str, str, float] | None = None, ours: bool = False
) -> RankExit:
    raised = RankError(type=error[0], message=error[1], time_ns=int(error[2] * 1e9)) if error else None
    return RankExit(
        host="h0", rank=rank, attempt=0, code=code, time_ns=int(at * 1e9), error=raised, signalled_by_us=ours
    )


def test_other_hosts_are_told_what_the_failure_file_says_and_no_output():
    first, second = exited(1, 3, 1.0, ("ValueError", "no", 1.0)), exited(0, 1, 2.0)
    outcome = failed([replace(first, tail="printed"), second], finding=failed_step(3, 2, [first]).finding)
    message = FinishMessage(outcome=outcome.for_other_hosts())
    assert message.outcome.exits == (first,) and message.outcome.finding is None
    assert decode(encode(message)) == message
    assert message.outcome.failure_text() == outcome.failure_text() == "rank 1 on h0 raised ValueError: no"


@pytest.mark.parametrize(
    ("rank_code", "code"), [(1, 1), (3, 3), (-9, 137), (-15, 143), (-11, 139), (200, 1), (204, 1), (199, 199)]
)
def test_a_ranks_code_becomes_the_runs(rank_code, code):
    assert run_code(rank_code) == code


def test_the_first_failing_rank_by_time_leads():
    assert by_blame([exited(0, 1, 2.0), exited(1, 3, 1.0)])[0].rank == 1


def test_an_exception_counts_from_when_it_was_raised_and_not_from_its_processs_end():
    slow_to_die = exited(1, 1, 5.0, ("ValueError", "no", 1.0))
    quick_to_die = exited(0, 1, 2.0, ("KeyError", "x", 1.5))
    assert by_blame([quick_to_die, slow_to_die])[0] is slow_to_die


def test_a_broken_connection_is_never_the_headline_while_there_is_another_cause():
    victim = exited(0, 1, 1.0, ("RuntimeError", "Connection closed by peer [127.0.0.1]:1234", 1.0))
    culprit = exited(1, -9, 1.2)
    assert by_blame([victim, culprit])[0] is culprit


def test_a_rank_that_we_stopped_is_never_the_headline():
    assert by_blame([exited(0, -15, 0.5, ours=True), exited(1, 1, 1.0)])[0].rank == 1


def test_a_run_that_failed_has_a_code_that_is_not_0():
    assert failed([exited(0, 0, 0.5), exited(1, 204, 1.0)]).exit_code == 1


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (Stop(StopKind.LIMIT, "SIGTERM", ""), 204),
        (Stop(StopKind.SIGNAL, "SIGTERM", ""), 204),
        (Stop(StopKind.SIGNAL, "SIGINT", ""), 130),
        (Stop(StopKind.SIGNAL, "SIGHUP", ""), 128 + signal.SIGHUP),
        (Stop(StopKind.USER, "SIGTERM", ""), 143),
        (Stop(StopKind.REFUSED, "SIGTERM", ""), 2),
    ],
)
def test_each_way_to_stop_has_its_code(stop, code):
    assert stopped(stop).exit_code == code


def test_ranks_that_saved_before_a_stop_are_named_and_are_no_failure():
    stop = Stop(StopKind.LIMIT, "SIGTERM", "the limit of 20 s (--max-run) was reached")
    saved = [replace(exited(rank, 42, 1.0, ours=True), note=SAVED_AND_LEFT) for rank in (0, 1)]
    ended = stopped(stop, [*saved, exited(2, -9, 2.0, ours=True)])
    assert (ended.exit_code, ended.status, ended.exits) == (204, "Stopped", ())
    assert ended.reason == f"{stop.reason}; ranks 0-1 saved and left by TensorFlow's PreemptionCheckpointHandler"
    assert how_it_ended(saved[0]) == "saved and left" and how_it_ended(exited(0, 42, 1.0)) == "ended with code 42"


def test_how_a_rank_ended_is_said_in_words():
    assert how_it_ended(exited(0, -9, 1.0)) == "was ended by SIGKILL"
    assert how_it_ended(exited(0, 3, 1.0)) == "ended with code 3"
    assert how_it_ended(exited(0, 1, 1.0, ("ValueError", "x", 1.0))) == "raised ValueError"


def test_a_rank_that_left_early_is_named_where_its_peers_only_lost_the_connection():
    left = exited(1, 0, 1.0)
    victim = exited(0, 1, 1.2, ("RuntimeError", "Connection closed by peer [127.0.0.1]:1234", 1.1))
    assert failed([left, victim]).reason == "rank 0 on h0 raised RuntimeError after rank 1 on h0 had ended with 0"


def test_a_rank_that_ended_with_0_is_not_named_beside_a_failure_of_its_own_kind():
    assert "after" not in failed([exited(1, 0, 1.0), exited(0, 1, 1.2, ("ValueError", "no", 1.1))]).reason


def test_the_failure_text_has_the_exception_and_the_users_line():
    error = RankError(type="ValueError", message="no", time_ns=1, file="t.py", line=3, function="f", source=" x = 1\n")
    outcome = failed([RankExit(host="h0", rank=0, attempt=0, code=1, time_ns=2, error=error)])
    assert outcome.failure_text() == "rank 0 on h0 raised ValueError: no\n  t.py:3 in f\n    x = 1"


def test_the_failure_text_without_an_exception_has_the_note():
    killed = RankExit(host="h0", rank=0, attempt=0, code=-9, time_ns=2, note="killed by the kernel's OOM killer")
    assert failed([killed]).failure_text() == "rank 0 on h0 was ended by SIGKILL\nkilled by the kernel's OOM killer"
