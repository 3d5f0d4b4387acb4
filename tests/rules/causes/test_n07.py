"""N07: Python's lock is held by something that waits."""

from dataclasses import replace

import pytest

from paceline.findings import Confidence

HELD = {"ping_answers": True, "traceback_answers": False}


def owned(snapshot, owner=True, **fields):
    seen = snapshot(1, **fields)
    return replace(seen, stacks=tuple(replace(stack, owns_gil=owner) for stack in seen.stacks))


def test_a_thread_that_owns_the_lock_and_a_question_left_open_decide(found, case, snapshot):
    (finding,) = found("N07", case(snapshots=[owned(snapshot, **HELD, native=("nanosleep (libc.so.6)",))]))
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "stall", Confidence.HIGH)
    assert "its thread MainThread owns the lock and uses no CPU" in finding.saw
    assert "native frames: nanosleep (libc.so.6)" in finding.saw
    assert "--pid 1001" in finding.next[0]


def test_an_owner_in_one_snapshot_is_likely_and_at_two_sure(found, case, snapshot):
    not_asked = {"ping_answers": True, "traceback_answers": None}
    once = owned(snapshot, **not_asked)
    (finding,) = found("N07", case(snapshots=[once]))
    assert finding.confidence is Confidence.LIKELY
    both = case(snapshots=[once])
    stall = replace(both.stall, places={1: (7, once.at_ns - 2_000_000_000)})
    (finding,) = found("N07", replace(both, stall=stall))
    assert finding.confidence is Confidence.HIGH


def test_a_question_left_open_alone_proves_nothing(found, case, snapshot):
    (finding,) = found("N07", case(snapshots=[snapshot(1, **HELD)]))
    assert finding.confidence is Confidence.UNCLEAR


def test_a_plain_sleep_on_a_busy_machine_is_left_to_n01(found, case, snapshot):
    asleep = owned(snapshot, owner=False, **HELD, system_call="clock_nanosleep")
    assert not found("N07", case(snapshots=[asleep]))
    (finding,) = found("N01", case(snapshots=[asleep]))
    assert finding.ranks == (1,)


def test_native_frames_alone_make_it_likely(found, case, snapshot):
    blind = {"ping_answers": None, "traceback_answers": None}
    (finding,) = found("N07", case(snapshots=[snapshot(1, **blind, native=("pthread_cond_wait", "take_gil"))]))
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
def test_look_alikes_are_left_to_others(found, case, snapshot, seen):
    assert not found("N07", case(snapshots=[snapshot(1, **seen)]))


def test_without_a_server_to_ask_it_is_not_judged(missing, case, snapshot):
    fact = missing("N07", case(snapshots=[snapshot(1, ping_answers=None, traceback_answers=None)]))
    assert fact.startswith("whether the Python of rank 1 answers")
