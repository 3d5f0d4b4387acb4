"""What restarts cost, as the terminal, `ps` and programs are told."""

import pytest

from paceline.diagnosis.case import to_plain
from paceline.diagnosis.restarts import EVENT, Restart, RestartTotals
from paceline.views.live import event_text
from paceline.views.restarts import restart_line, restarts_facts, restarts_text

NOTHING = Restart(attempt=1, loaded=False, lost_steps=1200)
OLD = Restart(attempt=1, loaded=False, loaded_older=True, lost_steps=1)
WENT_ON = Restart(attempt=2, loaded=True, lost_steps=0)
UNKNOWN = Restart(attempt=3, loaded=None)


def told(found):
    return event_text({"event": EVENT, "attempt": found.attempt, "restart": to_plain(found)})


def test_a_restart_from_nothing_is_a_notice_in_four_parts():
    assert told(NOTHING).splitlines() == [
        "warning[F14]: attempt 1 began again from the start of the script; 1 200 steps are made again",
        "  saw       before its first step it loaded nothing",
        "  next      edit the script: load a checkpoint before the first step, and save one every some hundred steps",
        "  more      paceline explain F14",
    ]


def test_a_checkpoint_that_is_older_than_the_job_is_not_its_own():
    assert "1 step is made again" in told(OLD)
    assert "it loaded only files that are older than the job" in told(OLD)


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
        (RestartTotals(), "", (0, 0)),
        (RestartTotals(count=1, lost_steps=12, found=(WENT_ON,)), "1 restart, 12 steps lost", (1, 12)),
        (RestartTotals(count=2, lost_steps=None, found=(UNKNOWN,)), "2 restarts", (2, None)),
        (
            RestartTotals(count=1, lost_steps=5, found=(NOTHING,)),
            "1 restart, 5 steps lost, nothing loaded (F14)",
            (1, 5),
        ),
    ],
)
def test_all_restarts_of_a_run_in_a_few_words(found, text, facts):
    assert restarts_text(found) == text
    assert tuple(restarts_facts(found).values()) == facts
