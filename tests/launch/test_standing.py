"""When a standstill is looked at again, and what it takes until a stall counts."""

from dataclasses import replace

from paceline.diagnosis.case import Level, Standstill
from paceline.diagnosis.looks import Look
from paceline.launch.standing import Standing, suspects

FOUND = Standstill(level=Level.STALL, since_ns=0, detected_ns=3, threshold_seconds=3.0, late=(1,), waiting=(0, 2))
IDLE = (Look(host="a", rank=1, pid=5, at_ns=1, state="S", cpu_fraction=0.0),)
BUSY = (replace(IDLE[0], state="R", cpu_fraction=1.0, stack_moved=True),)


def standing(*looks, at=0.0):
    it = Standing(FOUND, FOUND.late)
    return it, [it.looked(FOUND, look, at + 10 * number) for number, look in enumerate(looks)]


def test_two_looks_at_which_nothing_moves_confirm_a_stall():
    it, news = standing(IDLE)
    assert news == [True] and not it.is_confirmed
    it, news = standing(IDLE, IDLE)
    assert news == [True, False] and it.is_confirmed
    assert it.why() == "rank 1 has stood still while others wait"


def test_one_idle_look_at_a_rank_that_got_on_does_not_count():
    it, news = standing(BUSY, IDLE)
    assert news == [True, None] and it.now.level is Level.WAITING
    assert it.is_due(FOUND, 10 + 1.5) and not it.is_due(FOUND, 10 + 1.0)
    it, news = standing(BUSY, IDLE, BUSY, IDLE)
    assert news == [True, None, False, None] and it.now.level is Level.WAITING


def test_a_second_idle_look_does():
    it, news = standing(BUSY, IDLE, IDLE)
    assert news == [True, None, True] and it.now.level is Level.STALL and it.is_confirmed


def test_looks_become_rarer_and_another_late_rank_is_looked_at_at_once():
    it, _ = standing(IDLE)
    assert not it.is_due(FOUND, 1.9) and it.is_due(FOUND, 2.0)
    it, _ = standing(*[IDLE] * 9)
    assert not it.is_due(FOUND, 80 + 29) and it.is_due(FOUND, 80 + 30)
    assert it.is_due(replace(FOUND, late=(2,), waiting=(0,)), 81)


def test_the_late_and_one_that_waits_are_looked_at():
    assert suspects(FOUND) == [1, 0]
    assert suspects(replace(FOUND, late=(), waiting=tuple(range(20)))) == list(range(8))


def test_a_host_too_busy_to_look_raises_no_alarm():
    it, news = standing((), (), ())
    assert news == [None, None, True]
    assert it.now.level is Level.WAITING and not it.is_confirmed
    assert it.now.progress == ("not judged: no look at them came back",)
