"""A class of time that is large has a cause, or is listed."""

import pytest

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.unexplained_time import unexplained_time
from paceline.diagnosis.verdict import diagnose
from paceline.facts import RankRecord, Run, Status
from paceline.findings import Cause, CauseFinding

SECOND = 10**9
STARTED = 1_795_000_000 * SECOND


def case_of(*, steps=100.0, data=0.0, communication=0.0, checkpoint=0.0, lost=0.0):
    run = Run(
        id="r-1",
        name="",
        directory="d",
        command=(),
        started_ns=STARTED,
        first_host="a",
        status=Status.COMPLETED,
        finished_ns=STARTED + round((steps + lost) * SECOND),
    )
    record = RankRecord(
        host="a",
        rank=0,
        attempt=0,
        step_count=1000,
        last_step_ns=STARTED + round(steps * SECOND),
        step_seconds=steps,
        data_seconds=data,
        communication_seconds=communication,
        checkpoint_seconds=checkpoint,
        checkpoint_outside_seconds=0.0,
    )
    return Case(run=run, now_ns=run.finished_ns, lasts=False, ranks={0: record})


def finding(code, level=Level.SLOW):
    return CauseFinding(code=code, title="t", level=level, ranks=(0,))


@pytest.mark.parametrize(
    ("spent", "codes", "words"),
    [
        ({"data": 52.0}, (), ["waiting for data, 52%"]),
        ({"data": 52.0}, ("S05",), []),
        ({"data": 52.0}, ("S01",), ["waiting for data, 52%"]),
        ({"data": 9.0}, (), []),
        ({"communication": 31.0}, (), ["exposed communication, 31%"]),
        ({"communication": 31.0}, ("S05",), []),
        ({"checkpoint": 20.0, "data": 20.0}, ("S18",), []),
        ({"checkpoint": 20.0}, (), ["saving checkpoints, 20%"]),
        ({"lost": 50.0}, (), ["outside of steps, 33%"]),
        ({"lost": 5.0}, (), []),
        # The shares of a short run are those of its start.
        ({"steps": 5.0, "data": 4.0}, (), []),
    ],
)
def test_what_is_large_is_explained_or_listed(spent, codes, words):
    listed = list(unexplained_time(case_of(**spent), [finding(code) for code in codes]))
    assert len(listed) == len(words) and all(map(str.startswith, listed, words))


def test_a_diagnosis_lists_it():
    silent = Cause(code="S05", title="loader", page="", find=lambda case: ())
    assert diagnose(case_of(data=52.0), [silent]).not_judged == (
        "waiting for data, 52% of the time in steps: no cause is found for it",
    )
