"""A finding is as sure as its evidence: each rule says which kinds of it suffice, and one place holds the rules to that."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Case, Heartbeat, Level, Stall
from paceline.diagnosis.grounds import grounds_of
from paceline.diagnosis.verdict import diagnose
from paceline.facts import RankError, RankExit, Run
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.rules import all_causes

RUN = Run(id="r-1", name="", directory="d", command=(), started_ns=1, first_host="a")
EMPTY = Case(run=RUN, now_ns=10, lasts=False)
RAISED = RankError(type="KeyError", message="'x'", time_ns=5)
EXIT = RankExit(host="a", rank=1, attempt=0, code=1, time_ns=5, error=RAISED)
STILL = Stall(level=Level.STALL, since_ns=1, detected_ns=2, threshold_seconds=3.0, basis="steps")


def test_each_cause_says_what_makes_it_sure():
    assert [cause.code for cause in all_causes() if not cause.sure_by] == []


@pytest.mark.parametrize(
    ("case", "ranks", "grounds"),
    [
        (EMPTY, (), set()),
        (replace(EMPTY, exits=(EXIT,)), (1,), {Ground.EXIT, Ground.WORDS}),
        (replace(EMPTY, exits=(EXIT,)), (0,), set()),
        (replace(EMPTY, exits=(EXIT,)), (), {Ground.EXIT, Ground.WORDS}),
        (replace(EMPTY, tails={0: "oh"}), (0,), {Ground.WORDS}),
        (replace(EMPTY, stall=STILL), (0,), set()),
        (replace(EMPTY, stall=replace(STILL, basis="flight recorder")), (0,), {Ground.CALLS}),
        (replace(EMPTY, heartbeats={0: Heartbeat(host="a", rank=0, at_ns=1, moved_ns=1)}), (0,), set()),
        (replace(EMPTY, events=({"event": "host_lost"},)), (), {Ground.EVENTS}),
    ],
)
def test_what_a_case_has_about_the_named_ranks(case, ranks, grounds):
    finding = CauseFinding(code="C01", title="t", level=Level.CRASH, ranks=ranks)
    assert grounds_of(case, finding) == grounds


@pytest.mark.parametrize(
    ("case", "confidence", "said"),
    [
        (EMPTY, Confidence.HIGH, Confidence.LIKELY),
        (replace(EMPTY, tails={1: "oh"}), Confidence.HIGH, Confidence.LIKELY),
        (replace(EMPTY, exits=(EXIT,)), Confidence.HIGH, Confidence.HIGH),
        (EMPTY, Confidence.UNCLEAR, Confidence.UNCLEAR),
    ],
)
def test_without_a_sufficient_kind_nothing_is_sure(case, confidence, said):
    finding = CauseFinding(code="C01", title="t", level=Level.CRASH, ranks=(1,), confidence=confidence)
    cause = Cause(code="C01", title="t", page="", find=lambda case: (finding,), sure_by=(Ground.EXIT,))
    assert [one.confidence for one in diagnose(case, [cause]).findings] == [said]
