"""K12: the job uses spot capacity without a checkpoint URL."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun

PAGE = """\
Spot capacity without a place for checkpoints

What it means: The job runs on spot capacity, which can be taken away with two minutes' notice, and it has no
  checkpoint URL. After an interruption SageMaker starts the job again on other machines with empty disks.
Why it matters: All work since the start is lost, and you pay for it again. max_run counts all starts together, so a
  job that is interrupted late may never finish.
What to do: Set checkpoint_s3_uri="s3://BUCKET/PREFIX". Let the script write to /opt/ml/checkpoints and look there
  when it starts. Or do not use spot.
Source: SageMaker developer guide, "Managed Spot Training in Amazon SageMaker AI" and "Checkpoints in Amazon SageMaker
  AI".
"""


def find(before: BeforeRun) -> Iterator[Finding]:
    """The finding, if the job uses spot without checkpoints."""
    # Elsewhere spot has no meaning: nothing is taken away.
    if not before.use_spot or before.checkpoint_url or before.engine != "sagemaker":
        return
    hours = before.plan.hours if before.plan is not None else None
    yield Finding(
        code="K12",
        severity=Severity.WARNING,
        what="the job runs on spot capacity and keeps no checkpoint: an interruption starts it from the beginning",
        saw="the job uses spot capacity and has no checkpoint URL"
        + (f"; the plan expects {hours:.3g} hours" if hours is not None else ""),
        next='checkpoint_s3_uri="s3://BUCKET/PREFIX"',
    )


RULE = Rule(code="K12", page=PAGE, find=find)
