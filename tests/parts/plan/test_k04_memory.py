"""K04: what the plan says of memory."""

import pytest

from paceline.findings import Severity, Unknown
from paceline.parts.plan.k04_memory import find
from paceline.parts.plan.planner.answer import Fit
from paceline.rules.job_facts import BeforeRun


def test_what_does_not_fit_stops_the_job_with_the_batch_that_would(plan):
    (finding,) = find(BeforeRun(plan=plan(verdict=Fit.DOES_NOT_FIT, need_gib=22, largest_batch=24)))
    assert finding.severity is Severity.ERROR
    assert (
        finding.saw == "the tensors of a step need 22 GiB, the device has 16 GiB; the largest part: activations, 5 GiB"
    )
    assert "a batch of 24" in finding.next


def test_the_grey_zone_is_a_warning(plan):
    (finding,) = find(BeforeRun(plan=plan(verdict=Fit.GREY)))
    assert finding.severity is Severity.WARNING


def test_what_fits_draws_nothing(plan):
    assert not list(find(BeforeRun(plan=plan())))


def test_without_a_plan_it_is_not_judged(plan):
    with pytest.raises(Unknown, match=r"^a plan \(paceline plan train.py\)$"):
        list(find(BeforeRun(script_path="train.py")))
    with pytest.raises(Unknown, match=r"^activations$"):
        list(find(BeforeRun(plan=plan(verdict=Fit.NOT_JUDGED, missing="activations"))))
