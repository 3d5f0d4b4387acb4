"""K05: the plan says that the job does not end within its time limit."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.parts.plan.planner.answer import Row
from paceline.rules.job_facts import BeforeRun

PAGE = """\
The job will not end within its time limit

What it means: The planner expects the training to last longer than max_run. If even the short end of the expected
  interval is beyond the limit, it is an error. If the limit lies inside the interval, it is a warning.
Why it matters: You pay in full for a job that is stopped at its limit. SageMaker reports it as merely stopped, and
  `fit()` of the old SDK returned from it as if nothing had happened. Without a checkpoint nothing is left.
What to do: Set the limit under "next", plan for fewer epochs, or use something faster: `paceline plan` shows the
  expected hours by type and number of hosts. If ModelTrainer gets no limit, its own limit is one hour.
Source: paceline/parts/plan/planner/completion.py; docs/plan.md; SageMaker API, StoppingCondition.
"""

_HOUR = 3600.0


def find(before: BeforeRun) -> Iterator[Finding]:
    """Compares the limit with the hours that the plan expects."""
    limit = before.max_run_seconds
    if limit is None:
        return
    plan = before.plan
    if not isinstance(plan, Row):
        raise Unknown(f"a plan (paceline plan {before.script_path or 'SCRIPT'} --steps N)")
    if plan.hours is None:
        raise Unknown("how long the job will last: how far it trains (--steps, or --epochs with --samples)")
    low = plan.hours if plan.hours_low is None else plan.hours_low
    high = plan.hours if plan.hours_high is None else plan.hours_high
    if high * _HOUR <= limit:
        return
    surely = low * _HOUR > limit
    yield Finding(
        code="K05",
        severity=Severity.ERROR if surely else Severity.WARNING,
        what=f"the job {'will' if surely else 'may'} not end within its limit of {_hours(limit / _HOUR)}"
        + _lost(before),
        saw=f"expected {_hours(plan.hours)}, between {_hours(low)} and {_hours(high)}{_steps(plan)}{_likely(plan)}",
        next=f"a limit of {_seconds(high)} seconds ({_hours(high)})",
    )


def _steps(plan: Row) -> str:
    if plan.step_count is None or plan.step is None:
        return ""
    return f": {plan.step_count} steps of {plan.step.seconds * 1e3:.3g} ms and what is besides them"


def _likely(plan: Row) -> str:
    return "" if plan.within_probability is None else f"; in time with a probability of {plan.within_probability:.0%}"


def _lost(before: BeforeRun) -> str:
    return "" if before.checkpoint_url else ", and no checkpoint URL is given"


def _hours(hours: float) -> str:
    return f"{hours:.3g} h" if hours >= 1 else f"{hours * 60:.2g} min"


def _seconds(hours: float) -> int:
    """The time in seconds, rounded up to whole minutes."""
    return 60 * -int(-hours * 60 // 1)


RULE = Rule(code="K05", page=PAGE, find=find)
