"""A stall without a cause is told with what is known of it."""

from paceline.diagnosis.case import Case, Level, Standstill
from paceline.diagnosis.looks import Frame, Look, ThreadStack
from paceline.diagnosis.unclear import unexplained
from paceline.diagnosis.verdict import diagnose
from paceline.facts import Run
from paceline.findings import Cause, CauseFinding

RUN = Run(id="r-1", name="j", directory="/nowhere", command=(), started_ns=0, first_host="a")
STALL = Standstill(level=Level.STALL, since_ns=0, detected_ns=3, threshold_seconds=3.0, late=(1,), waiting=(0, 2), since_step=7,
                   group="0", index=9, operation="all_reduce")  # fmt: skip
STACK = ThreadStack(
    pid=5, thread="MainThread", main=True, frames=(Frame(file="train.py", line=8, function="main", users=True),)
)
LOOK = Look(host="a", rank=1, pid=5, at_ns=1, state="S", stacks=(STACK,))


def a_case(standstill=STALL):
    return Case(run=RUN, now_ns=9, lasts=True, standstill=standstill, looks={1: LOOK})


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
    waiting = Standstill(level=Level.WAITING, since_ns=0, detected_ns=3, threshold_seconds=3.0, late=(1,))
    assert unexplained(a_case(waiting)) is None and unexplained(a_case(None)) is None
