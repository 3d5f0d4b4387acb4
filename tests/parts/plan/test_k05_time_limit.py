"""K05: the plan's hours against the limit."""

import pytest

from paceline.findings import Severity, Unknown
from paceline.parts.plan.k05_time_limit import find
from paceline.rules.job_facts import BeforeRun


def test_a_limit_below_the_whole_interval_stops_the_job(plan):
    (finding,) = find(BeforeRun(plan=plan(step_count=72_000), max_run_seconds=3600))
    assert finding.severity is Severity.ERROR
    assert finding.what == "the job will not end within its limit of 1 h, and no checkpoint URL is given"
    assert finding.saw.startswith("expected 2 h, between 1.5 h and 3 h: 72000 steps of 100 ms")
    assert finding.next == "a limit of 10800 seconds (3 h)"


def test_a_limit_inside_the_interval_is_a_warning(plan):
    row = plan(within_probability=0.4)
    (finding,) = find(BeforeRun(plan=row, max_run_seconds=2 * 3600, checkpoint_url="s3://bucket/c"))
    assert finding.severity is Severity.WARNING
    assert finding.what == "the job may not end within its limit of 2 h"
    assert "probability of 40%" in finding.saw


@pytest.mark.parametrize("limit", [None, 3 * 3600, 86_400])
def test_enough_time_or_no_limit_draws_nothing(plan, limit):
    assert not list(find(BeforeRun(plan=plan(), max_run_seconds=limit)))


def test_without_hours_it_is_not_judged(plan):
    with pytest.raises(Unknown, match="a plan"):
        list(find(BeforeRun(max_run_seconds=60)))
    with pytest.raises(Unknown, match="how far it trains"):
        list(find(BeforeRun(max_run_seconds=60, plan=plan(hours=None))))
