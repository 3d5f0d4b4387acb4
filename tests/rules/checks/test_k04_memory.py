"""K04: what the plan says of memory."""

from paceline.findings import Severity
from paceline.planner.answer import Fit


def test_what_does_not_fit_stops_the_job_with_the_batch_that_would(found, job, plan):
    row = plan(fit=Fit.DOES_NOT_FIT, need_gib=22, largest_batch=24)
    (finding,) = found("K04", job(plan=row))
    assert finding.severity is Severity.ERROR
    assert (
        finding.saw == "the tensors of a step need 22 GiB, the device has 16 GiB; the largest part: activations, 5 GiB"
    )
    assert "a batch of 24" in finding.next


def test_the_grey_zone_is_a_warning(found, job, plan):
    (finding,) = found("K04", job(plan=plan(fit=Fit.GREY)))
    assert finding.severity is Severity.WARNING


def test_what_fits_draws_nothing(found, job, plan):
    assert not found("K04", job(plan=plan()))


def test_without_a_plan_it_is_not_judged(missing, job, plan):
    assert missing("K04", job("x = 1")) == "a plan (paceline plan train.py)"
    assert missing("K04", job(plan=plan(fit=Fit.NOT_JUDGED, missing="activations"))) == "activations"
