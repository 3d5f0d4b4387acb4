"""N13: the CUDA driver does not answer for a rank's process."""

import pytest

from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.hang.stall import StallDetector
from paceline.diagnosis.verdict import diagnose
from paceline.rules import discover

IN_FIVE = GroupCounters(name="0", enqueued=5, completed=4, recorder="nccl", ranks=(0, 1))


def test_a_driver_that_does_not_answer_is_told_before_what_else_the_recorder_shows(case, snapshot, heartbeat):
    heartbeats = {0: heartbeat(0, groups=(IN_FIVE,)), 1: heartbeat(1, groups=(IN_FIVE,), driver_answers=False)}
    still = StallDetector(2).observe(heartbeats, heartbeats[0].at_ns)
    assert still.together
    judged = diagnose(
        case(still=still, snapshots=[snapshot(0), snapshot(1)], heartbeats=heartbeats.values()), discover("causes")
    )
    assert [(finding.code, finding.ranks, finding.confidence) for finding in judged.findings] == [
        ("N13", (1,), "likely")
    ]


@pytest.mark.parametrize("state", ["D"])
def test_a_process_that_is_stuck_in_the_kernel_makes_it_sure(found, case, snapshot, heartbeat, state):
    heartbeats = [heartbeat(0), heartbeat(1, driver_answers=False)]
    (finding,) = found("N13", case(snapshots=[snapshot(1, state=state)], heartbeats=heartbeats))
    assert finding.confidence == "high"


@pytest.mark.parametrize("answers", [True, None])
def test_a_driver_that_answers_or_was_not_asked_is_left_alone(found, case, heartbeat, answers):
    assert not found("N13", case(heartbeats=[heartbeat(0), heartbeat(1, driver_answers=answers)]))


def test_nothing_is_said_while_the_job_goes_on(found, case, heartbeat):
    assert not found("N13", case(still=False, heartbeats=[heartbeat(1, driver_answers=False)]))
