"""N07: Python's lock is held by something that waits."""

from dataclasses import replace

import pytest

from paceline.findings import Confidence

HELD = {"ping_answers": True, "traceback_answers": False}


def owned(look, owner=True, **fields):
    seen = look(1, **fields)
    return replace(seen, stacks=tuple(replace(stack, owns_gil=owner) for stack in seen.stacks))


def test_a_thread_that_owns_the_lock_and_a_question_left_open_decide(found, case, look):
    (finding,) = found("N07", case(looks=[owned(look, **HELD, native=("nanosleep (libc.so.6)",))]))
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "stall", Confidence.HIGH)
    assert "its thread MainThread owns the lock and uses no CPU" in finding.saw
    assert "native frames: nanosleep (libc.so.6)" in finding.saw
    assert "--pid 1001" in finding.next[0]


def test_an_owner_at_one_look_is_likely_and_at_two_sure(found, case, look):
    not_asked = {"ping_answers": True, "traceback_answers": None}
    once = owned(look, **not_asked)
    (finding,) = found("N07", case(looks=[once]))
    assert finding.confidence is Confidence.LIKELY
    both = case(looks=[once])
    standstill = replace(both.standstill, places={1: (7, once.at_ns - 2_000_000_000)})
    (finding,) = found("N07", replace(both, standstill=standstill))
    assert finding.confidence is Confidence.HIGH


def test_a_question_left_open_alone_proves_nothing(found, case, look):
    (finding,) = found("N07", case(looks=[look(1, **HELD)]))
    assert finding.confidence is Confidence.UNCLEAR


def test_a_plain_sleep_on_a_busy_machine_is_left_to_n01(found, case, look):
    asleep = owned(look, owner=False, **HELD, system_call="clock_nanosleep")
    assert not found("N07", case(looks=[asleep]))
    (finding,) = found("N01", case(looks=[asleep]))
    assert finding.ranks == (1,)


def test_native_frames_alone_make_it_likely(found, case, look):
    blind = {"ping_answers": None, "traceback_answers": None}
    (finding,) = found("N07", case(looks=[look(1, **blind, native=("pthread_cond_wait", "take_gil"))]))
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "seen",
    [
        {"ping_answers": True, "traceback_answers": True},
        {**HELD, "cpu_fraction": 0.99},
        {**HELD, "state": "T"},
        {**HELD, "state": "D"},
        {**HELD, "frozen": True},
        {"ping_answers": False, "traceback_answers": False},
    ],
)
def test_look_alikes_are_left_to_others(found, case, look, seen):
    assert not found("N07", case(looks=[look(1, **seen)]))


def test_without_a_server_to_ask_it_is_not_judged(missing, case, look):
    fact = missing("N07", case(looks=[look(1, ping_answers=None, traceback_answers=None)]))
    assert fact.startswith("whether the Python of rank 1 answers")
