"""The plan of one job, from a text with the arguments of `paceline plan`."""

import shlex

from paceline.parts.plan.cli.question import question_of
from paceline.parts.plan.cli.verb import parse
from paceline.parts.plan.planner.answer import Row
from paceline.parts.plan.planner.evaluate import evaluate


def planned(machine: str | None, hosts: int, max_run_seconds: float | None, argv: str) -> Row:
    """The planner's answer for this machine type, number of hosts and time limit. `argv`: arguments of `paceline plan`.

    Raises:  UsageError: as `paceline plan`
    """
    of_the_job = ["--host-counts", str(hosts), *(["--instance", machine] if machine else [])]
    if max_run_seconds is not None:
        of_the_job += ["--max-run", f"{max_run_seconds:g}s"]
    return evaluate(question_of(parse([*of_the_job, *shlex.split(argv)]))).rows[0]
