"""The checks that every job must pass before it is submitted: those of rules/checks, of rules/source and of the parts, errors first."""

import shlex
from dataclasses import replace
from pathlib import Path

from paceline.facts import Program, ProgramKind
from paceline.launch.agent.opt_ml import opt_ml_refusal
from paceline.parts.engines.submission import Submission
from paceline.parts.sagemaker.estimator import console
from paceline.parts.sagemaker.estimator.job import JobSpec
from paceline.parts.sagemaker.estimator.plan_check import planned_row
from paceline.rules.collect import before_of
from paceline.rules.job_facts import BeforeRun, checks_of, refusal
from paceline.views.checks import checks_text


def before_of_job(spec: JobSpec, directory: Path, job: Submission | None = None) -> BeforeRun:
    """What the checks see of a job. `directory`: that of the code. `job`: as it is submitted; without it its channels are not known."""
    values, machines = spec.values, spec.machines
    source = directory / str(values.get("source_dir") or "")
    program = Program(kind=ProgramKind.SCRIPT, target=str(values.get("entry_point")))
    return before_of(
        engine=machines.engine,
        instance_type=machines.instance_type,
        hosts=machines.hosts,
        ranks_per_host=spec.per_host,
        gpus_per_host=machines.gpus_per_host,
        program=program if job is None else job.program,
        directory=source if job is None else directory,
        channels=() if job is None else job.channels,
        launcher=spec.distribution.strategy,
        framework={"PyTorch": "pytorch", "TensorFlow": "tensorflow"}.get(spec.class_name),
        framework_version=values.get("framework_version"),
        py_version=values.get("py_version"),
        image_uri=values.get("image_uri"),
        max_run_seconds=spec.max_run_seconds,
        use_spot=bool(values.get("use_spot_instances")),
        checkpoint_url=values.get("checkpoint_s3_uri") if job is None else job.checkpoint_url,
        environment=spec.environment,
        hyperparameters=spec.hyperparameters,
        profile=spec.profile,
        plan=planned_row(values.get("planner"), machines.instance_type, machines.hosts, spec.max_run_seconds),
    )


def pass_checks(spec: JobSpec, job: Submission, directory: Path) -> None:
    """Print the warnings, and what could not be checked. `directory`: the directory of the code.

    Raises:  UsageError K..: an error that stops the job
    """
    values = spec.values
    before = before_of_job(spec, directory, job)
    if job.file.job.contract.shown_at_opt_ml and _names_opt_ml(before):
        before = replace(before, has_opt_ml=opt_ml_refusal() is None)
    verdicts = checks_of(before)
    error = refusal(verdicts)
    if error is not None:
        raise error
    script = _to_type(directory / before.script_path, Path(str(values.get("entry_point") or "")))
    console.checks(checks_text(verdicts, more=f"paceline check {script}"))


def _to_type(*places: Path) -> str:
    """The script for a command that the user types: the first of these that is a file below this directory, else SCRIPT."""
    here = Path.cwd()
    for place in places:
        if place.is_file() and place.absolute().is_relative_to(here):
            return shlex.quote(str(place.absolute().relative_to(here)))
    return "SCRIPT"


def _names_opt_ml(before: BeforeRun) -> bool:
    return any("/opt/ml" in text for text in before.texts)
