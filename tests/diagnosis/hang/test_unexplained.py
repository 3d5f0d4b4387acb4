"""A stall without a cause is told with what is known of it."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Case, Confirmation, Level, Proof, Stall
from paceline.diagnosis.hang.unexplained import unexplained
from paceline.diagnosis.snapshots import Frame, RankSnapshot, ThreadStack
from paceline.diagnosis.verdict import diagnose
from paceline.facts import Run
from paceline.findings import Cause, CauseFinding, Confidence

RUN = Run(id="r-1", name="j", directory="/nowhere", command=(), started_ns=0, first_host="a")
STALL = Stall(level=Level.STALL, since_ns=0, detected_ns=3, threshold_seconds=3.0, late=(1,), waiting=(0, 2), since_step=7,
                   group="0", index=9, operation="all_reduce")  # fmt: skip
STACK = ThreadStack(
    pid=5, thread="MainThread", main=True, frames=(Frame(file="train.py", line=8, function="main", users=True),)
)
SNAPSHOT = RankSnapshot(host="a", rank=1, pid=5, at_ns=1, state="S", stacks=(STACK,))


def a_case(stall=STALL):
    return Case(run=RUN, now_ns=9, lasts=True, stall=stall, snapshots={1: SNAPSHOT})


def test_who_stands_and_where_is_told_although_nobody_knows_why():
    (found,) = diagnose(a_case(), ()).findings
    assert (found.code, found.ranks, found.since_step) == ("unclear", (1,), 7)
    assert found.saw[0] == "ranks 0,2 wait in all_reduce 9 of group 0 for rank 1"
    assert "train.py:8" in found.saw[1]
    assert "paceline stack r-1 --diff" in found.next[0]


def test_a_cause_makes_it_superfluous():
    cause = Cause(
        "N01",
        "asleep",
        "N01 asleep",
        lambda case: [CauseFinding(code="N01", title="asleep", level="stall", ranks=(1,))],
    )
    assert [found.code for found in diagnose(a_case(), (cause,)).findings] == ["N01"]


def test_slowness_does_not():
    cause = Cause(
        "S01", "slow", "S01 slow", lambda case: [CauseFinding(code="S01", title="slow", level="slow", ranks=(1,))]
    )
    assert {found.code for found in diagnose(a_case(), (cause,)).findings} == {"S01", "unclear"}


def test_waiting_is_no_stall():
    waiting = Stall(level=Level.WAITING, since_ns=0, detected_ns=3, threshold_seconds=3.0, late=(1,))
    assert unexplained(a_case(waiting)) is None and unexplained(a_case(None)) is None


HANG = Confirmation(
    proof=Proof.NOBODY_MOVES, ranks=(0, 1), seen=("rank 0 is at train.py:8 (state S)", "rank 1 is nowhere"), looks=3
)


def test_a_job_that_was_stopped_for_a_hang_always_has_a_finding_with_what_was_looked_at():
    (found,) = diagnose(replace(a_case(None), snapshots={}, confirmation=HANG), ()).findings
    assert (found.code, found.ranks, found.confidence) == ("unclear", (0, 1), Confidence.UNCLEAR)
    assert found.saw == (str(HANG.proof), *HANG.seen)


def test_also_where_the_recording_has_lost_the_evidence():
    (found,) = diagnose(replace(a_case(None), run=replace(RUN, exit_code=202), lasts=False), ()).findings
    assert "the recording has lost" in found.saw[0]


@pytest.mark.parametrize("lacking", ["ranks", "seen"])
def test_a_hang_cannot_be_confirmed_without_its_evidence(lacking):
    with pytest.raises(ValueError, match="seen to do nothing"):
        replace(HANG, **{lacking: ()})
