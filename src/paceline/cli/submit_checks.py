"""The checks that every submitted job passes: warnings and what could not be looked at are printed, an error stops it."""

import shlex
import sys
from pathlib import Path

from paceline.cli.terminal import columns, use_color
from paceline.launch.engines.submission import Submission
from paceline.planner.answer import Row
from paceline.rules.collect import before_of
from paceline.rules.job_facts import checks_of, refusal
from paceline.views.checks import checks_text


def pass_checks(job: Submission, engine: str, directory: Path, color: str, plan: str | None) -> None:
    """Look at the job as it would be submitted; `directory`: that of its code. `plan`: words of `paceline plan`, as --plan has them.

    Raises:  UsageError K..: what stops the job; P.., U..: the plan cannot be made
    """
    verdicts = checks_of(
        before_of(
            engine=engine,
            instance_type=job.engine_options.get("instance_type"),
            hosts=job.hosts,
            ranks_per_host=job.ranks_per_host,
            program=job.program,
            directory=directory,
            channels=job.channels,
            launcher="torch_distributed",
            max_run_seconds=job.max_run_seconds,
            checkpoint_url=job.checkpoint_url,
            environment=job.environment,
            hyperparameters=job.hyperparameters,
            profile=job.profile,
            plan=_planned(job, plan) if plan is not None else None,
        )
    )
    if error := refusal(verdicts):
        raise error
    print(checks_text(verdicts, width=columns(sys.stderr), color=use_color(color, sys.stderr)), file=sys.stderr)


def _planned(job: Submission, argv: str) -> Row:
    """The planner's answer for this job's machines, hosts and limit."""
    from paceline.cli.plan.question import question_of
    from paceline.cli.plan.verb import parse
    from paceline.planner.evaluate import evaluate

    machine = job.engine_options.get("instance_type")
    of_the_job = ["--hosts", str(job.hosts), *(["--instance", machine] if machine else [])]
    if job.max_run_seconds is not None:
        of_the_job += ["--max-run", f"{job.max_run_seconds:g}s"]
    return evaluate(question_of(parse([*of_the_job, *shlex.split(argv)]))).rows[0]
