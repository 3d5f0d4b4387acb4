"""N13: the CUDA driver does not answer for a rank's process."""

import pytest

from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.hang.stall import StallDetector
from paceline.diagnosis.verdict import diagnose
from paceline.rules import discover

IN_FIVE = GroupCounters(name="0", enqueued=5, completed=4, recorder="nccl", ranks=(0, 1))


def test_a_driver_that_does_not_answer_is_told_before_what_else_the_recorder_shows(case, look, pulse):
    pulses = {0: pulse(0, groups=(IN_FIVE,)), 1: pulse(1, groups=(IN_FIVE,), driver_answers=False)}
    still = StallDetector(2).observe(pulses, pulses[0].at_ns)
    assert still.together
    judged = diagnose(case(still=still, looks=[look(0), look(1)], pulses=pulses.values()), discover("causes"))
    assert [(finding.code, finding.ranks, finding.confidence) for finding in judged.findings] == [
        ("N13", (1,), "likely")
    ]


@pytest.mark.parametrize("state", ["D"])
def test_a_process_that_is_stuck_in_the_kernel_makes_it_sure(found, case, look, pulse, state):
    pulses = [pulse(0), pulse(1, driver_answers=False)]
    (finding,) = found("N13", case(looks=[look(1, state=state)], pulses=pulses))
    assert finding.confidence == "high"


@pytest.mark.parametrize("answers", [True, None])
def test_a_driver_that_answers_or_was_not_asked_is_left_alone(found, case, pulse, answers):
    assert not found("N13", case(pulses=[pulse(0), pulse(1, driver_answers=answers)]))


def test_nothing_is_said_while_the_job_goes_on(found, case, pulse):
    assert not found("N13", case(still=False, pulses=[pulse(1, driver_answers=False)]))
