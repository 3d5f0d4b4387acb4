"""What restarts cost, as the terminal, `ps` and programs are told."""

import pytest

from paceline.diagnosis.restart_costs import EVENT, NotUsed, Restart, RestartTotals, Resumption, totals
from paceline.recording.fact_json import to_plain
from paceline.views.live import event_text
from paceline.views.restarts import restart_line, restart_lines, restarts_facts, restarts_text, resumed_line

NOTHING = Restart(attempt=1, loaded=False, lost_steps=1200)
OLD = Restart(attempt=1, loaded=False, file="/job/last.pt", not_used=str(NotUsed.OLDER), lost_steps=1)
TOOK_NOTHING = Restart(
    attempt=1, loaded=False, file="/job/last.pt", not_used=str(NotUsed.NOTHING_TAKEN), lost_steps=211
)
WENT_ON = Restart(attempt=2, loaded=True, lost_steps=0)
UNKNOWN = Restart(attempt=3, loaded=None)
RESUMED = Resumption(attempt=1, step=7, rank=2, host="h", signal="SIGKILL", seconds=0.312, steps_again=1)


def told(found):
    return event_text({"event": EVENT, "attempt": found.attempt, "restart": to_plain(found)})


def test_a_restart_from_nothing_is_a_notice_in_four_parts():
    assert told(NOTHING).splitlines() == [
        "warning[F14]: attempt 1 began again from the start of the script; 1 200 steps are made again",
        "  saw       before its first step it loaded nothing",
        "  next      edit the script: load a checkpoint before the first step, and save one every some hundred steps",
        "  more      paceline help F14",
    ]


def test_a_checkpoint_that_is_older_than_the_job_is_not_its_own():
    assert "1 step is made again" in told(OLD)
    assert "it loaded /job/last.pt: it was written before the job began" in told(OLD)


def test_a_state_of_which_the_model_took_nothing_is_said_with_its_file():
    assert told(TOOK_NOTHING).startswith("warning[F17]: attempt 1 loaded /job/last.pt, and its model is as new\n")
    assert "went on" not in told(TOOK_NOTHING) + restart_line(TOOK_NOTHING) and "211 steps" in told(TOOK_NOTHING)


def test_a_restart_from_a_checkpoint_is_one_line_and_an_unknown_one_is_none():
    assert told(WENT_ON) == "paceline  attempt 2 went on from a checkpoint; no step is lost"
    assert told(UNKNOWN) is None
    assert restart_line(UNKNOWN) == "attempt 3: whether the script went on from a checkpoint is not known"
    assert "not known" in told(Restart(attempt=1, loaded=True))


def test_where_no_step_was_made_before_nothing_is_lost_by_beginning_again():
    found = Restart(attempt=1, loaded=False, lost_steps=0)
    assert told(found) == "paceline  attempt 1 began again from the start of the script; no step is lost"
    assert restarts_text(RestartTotals(count=1, lost_steps=0, found=(found,))) == "1 restart, 0 steps lost"


def test_an_event_that_nobody_meant_is_no_text():
    assert event_text({"event": EVENT, "restart": {"attempt": []}}) is None


@pytest.mark.parametrize(
    ("found", "text", "facts"),
    [
        (RestartTotals(), "", (0, 0, 0)),
        (RestartTotals(count=1, lost_steps=12, found=(WENT_ON,)), "1 restart, 12 steps lost", (1, 0, 12)),
        (RestartTotals(count=2, lost_steps=None, found=(UNKNOWN,)), "2 restarts", (2, 0, None)),
        (RestartTotals(count=2, lost_steps=0, resumed=(RESUMED, RESUMED)), "2 restarts, 2 resumed", (2, 2, 0)),
        (
            RestartTotals(count=2, lost_steps=12, found=(WENT_ON,), resumed=(RESUMED,)),
            "2 restarts, 1 resumed, 12 steps lost",
            (2, 1, 12),
        ),
        (
            RestartTotals(count=1, lost_steps=5, found=(NOTHING,)),
            "1 restart, 5 steps lost, began again (F14)",
            (1, 0, 5),
        ),
        (
            RestartTotals(count=2, lost_steps=5, found=(NOTHING, TOOK_NOTHING)),
            "2 restarts, 5 steps lost, began again (F14, F17)",
            (2, 0, 5),
        ),
    ],
)
def test_all_restarts_of_a_run_in_a_few_words(found, text, facts):
    assert restarts_text(found) == text
    assert tuple(restarts_facts(found).values()) == facts


def test_a_resume_is_told_with_its_step_its_cause_its_time_and_its_cost():
    event = {"t_ns": 1, "event": "resumed", **to_plain(RESUMED)}
    assert (
        event_text(event) == "paceline  resumed at step 7: rank 2 was killed (SIGKILL); 0.31 s, 1 step made again (F01)"
    )
    assert event_text({**event, "seconds": "soon"}) is None
    assert "rank 2 lost a loader worker; 0.31 s" in event_text({**event, "signal": None})
    assert "rank 2 hung; 0.31 s, 1 step made again (F01)" in event_text({**event, "signal": None, "hung": True})


def test_a_resumed_attempt_is_a_restart_that_lost_no_step():
    events = [
        {"event": "restart", "attempt": 1, "restarts_left": 0, "reason": "", "resume_step": 7},
        {"event": "resumed", **to_plain(RESUMED)},
        {"event": "restart", "attempt": 2, "restarts_left": 0, "reason": "", "resume_step": 9},
    ]
    found = totals(events)
    assert (found.count, found.lost_steps, found.found, found.resumed) == (2, 0, (), (RESUMED,))
    assert restarts_text(found) == "2 restarts, 1 resumed, 0 steps lost"
    assert restart_lines(found) == ["attempt 1 " + resumed_line(RESUMED)]
