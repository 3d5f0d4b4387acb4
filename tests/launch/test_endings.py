"""Whose end is a rank's own, and whose is our signal's: by what came first, not by which process was the first to be gone."""

import asyncio
import json
import signal
from types import SimpleNamespace

import pytest

from paceline.launch.endings import Surroundings, why_ended
from paceline.launch.rings import Leaving
from paceline.launch.workers import WorkerEnd

SECOND = 1_000_000_000
PID = 4711


class SilentPump:
    """Stands for the log pump of a rank that printed nothing."""

    def catch_up(self, rank):
        pass

    def tail(self, rank, stream):
        return ""


def ended(tmp_path, code, *, signalled=0.0, raised=None, done=None):
    """The ending of a process that was gone at 14 s; `raised`, `done`: when it had an exception, when its program was done."""
    if raised is not None:
        record = {"type": "KeyError", "message": "'x'", "time_ns": int(raised * SECOND)}
        (tmp_path / f"{PID}.json").write_text(json.dumps(record))
    said = None if done is None else Leaving(int(done * SECOND), 1 if raised is not None else 0)
    around = Surroundings(pump=SilentPump(), errors=tmp_path, said=said, others=frozenset(), oom_before=None, began=0.0)
    end = WorkerEnd(SimpleNamespace(rank=1), PID, code, 14 * SECOND, int(signalled * SECOND))
    return asyncio.run(why_ended(end, around))


@pytest.mark.parametrize("code", [1, -signal.SIGTERM])
def test_who_had_raised_before_our_signal_fell_by_itself(tmp_path, code):
    """Its interpreter took so long to go that the rank that only missed it was gone first, and we signalled the rest."""
    ending = ended(tmp_path, code, raised=10.0, done=10.1, signalled=13.0)
    assert (ending.code, ending.error.type, ending.signalled_by_us) == (1, "KeyError", False)


@pytest.mark.parametrize("code", [0, -signal.SIGTERM])
def test_whose_program_was_done_before_our_signal_left_by_itself(tmp_path, code):
    ending = ended(tmp_path, code, done=10.0, signalled=13.0)
    assert (ending.code, ending.signalled_by_us) == (0, False)


def test_who_ends_well_after_our_signal_ended_by_it(tmp_path):
    assert ended(tmp_path, 0, done=13.5, signalled=13.0).signalled_by_us


def test_who_raises_because_of_our_signal_ended_by_it(tmp_path):
    assert ended(tmp_path, 1, raised=13.2, done=13.3, signalled=13.0).signalled_by_us


def test_who_says_nothing_and_is_killed_by_us_ended_by_it(tmp_path):
    ending = ended(tmp_path, -signal.SIGTERM, signalled=13.0)
    assert (ending.code, ending.error, ending.signalled_by_us) == (-signal.SIGTERM, None, True)


def test_without_a_signal_of_ours_every_end_is_the_ranks_own(tmp_path):
    assert not ended(tmp_path, 1, raised=10.0).signalled_by_us
    assert not ended(tmp_path, 0, done=10.0).signalled_by_us
