"""N07: Python's lock is held by something that waits."""

import pytest

from paceline.findings import Confidence

HELD = {"ping_answers": True, "traceback_answers": False}


def test_a_ping_without_a_traceback_decides(found, case, look):
    (finding,) = found("N07", case(looks=[look(1, **HELD, native=("nanosleep (libc.so.6)",))]))
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "stall", Confidence.HIGH)
    assert "native frames: nanosleep (libc.so.6)" in finding.saw
    assert "--pid 1001" in finding.next[0]


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
