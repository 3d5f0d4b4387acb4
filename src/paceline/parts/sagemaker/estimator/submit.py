"""Submits a job to an engine. Everything is checked before anything is packed, sent or started."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.parts.engines import jobs
from paceline.parts.engines.base import Engine, Request, load
from paceline.parts.engines.submission import Submission
from paceline.parts.sagemaker.estimator import console
from paceline.parts.sagemaker.estimator.code import check_code, code_of, shipped
from paceline.parts.sagemaker.estimator.job import JobSpec, job_channels, job_submission
from paceline.parts.sagemaker.estimator.preflight import pass_checks
from paceline.parts.sagemaker.estimator.sagemaker_fields import sagemaker_options
from paceline.parts.sagemaker.estimator.session import Surroundings
from paceline.parts.sagemaker.estimator.training_job import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A job that has passed all checks on this machine."""

    job: Submission
    """The job in the form that the engine takes, without its code."""
    engine: Engine
    """The engine for this job."""
    run_dir: Path
    """The run's directory, which does not exist yet."""


def ready(
    spec: JobSpec,
    inputs: object,
    job_name: str,
    code: str,
    directory: Path,
    around: Surroundings,
    more: Mapping[str, Any] | None = None,
) -> Ready:
    """Check the inputs, the job and the engine. `code`: the script, relative to `directory`.

    Raises:  UsageError: anything is wrong; nothing has been written
    """
    channels, notices = job_channels(spec, inputs, around.directory)
    options = _options(spec, around)
    run_id = around.new_id()
    run_dir = around.runs_root / run_id
    job = job_submission(
        spec,
        run_id=run_id,
        job_name=job_name,
        script=code,
        channels=channels,
        directory=around.directory,
        run_dir=run_dir,
        options=options,
        more_platform=more,
    )
    engine = load(spec.machines.engine, around.environ, options)
    engine.plan(job)
    console.notices((*spec.notices, *notices, *_other_version(spec), *_never_again(job, engine)))
    pass_checks(spec, job, directory)
    return Ready(job=job, engine=engine, run_dir=run_dir)


def submit(
    spec: JobSpec, inputs: object, job_name: str, around: Surroundings, more: Mapping[str, Any] | None = None
) -> TrainingJob:
    """Pack the code and give the job to the engine.

    Raises:  PacelineError: refused here or by the engine; nothing remains on disk
    """
    check_code(spec.values, around.directory)
    with code_of(spec.values, directory=around.directory, environ=around.environ) as code:
        made = ready(spec, inputs, job_name, code.script, code.directory, around, more)
        run_dir = jobs.make_run_dir(made.run_dir.parent, made.job.run_id)
        try:
            job = replace(
                made.job, package=shipped(code, run_dir / jobs.CODE_FILE, spec.values.get("ignore_patterns", ()))
            )
        except BaseException:
            shutil.rmtree(run_dir, ignore_errors=True)
            raise
    jobs.submit_job(job, made.engine, run_dir)
    return TrainingJob(job_name, job.run_id, run_dir, around, bool(spec.values.get("raise_on_timeout", True)))


def planned(spec: JobSpec, inputs: object, job_name: str, around: Surroundings) -> Request:
    """The request that the engine would get for this job. Nothing is packed or sent.

    Raises:  UsageError: in the same cases as submit()
    """
    check_code(spec.values, around.directory)
    with code_of(spec.values, directory=around.directory, environ=around.environ) as code:
        made = ready(spec, inputs, job_name, code.script, code.directory, around)
        return made.engine.plan(made.job)


def _options(spec: JobSpec, around: Surroundings) -> dict[str, str]:
    if not spec.machines.on_sagemaker:
        return dict(spec.machines.options)
    region = around.environ.get("AWS_REGION") or around.environ.get("AWS_DEFAULT_REGION")
    return sagemaker_options(spec.class_name, spec.values, spec.machines, lambda: region)


def _never_again(job: Submission, engine: Engine) -> tuple[str, ...]:
    if not job.retries or engine.requeues:
        return ()
    return (f"max_retry_attempts={job.retries}: the engine {engine.name} starts nothing again",)


def _other_version(spec: JobSpec) -> tuple[str, ...]:
    """A notice if the installed release of the framework differs from the requested one. Only this machine's release can be checked."""
    wanted, package = (
        spec.values.get("framework_version"),
        {"PyTorch": "torch", "TensorFlow": "tensorflow"}.get(spec.class_name),
    )
    if wanted is None or package is None or spec.machines.engine != "local":
        return ()
    from importlib.metadata import PackageNotFoundError, version  # only here: it costs as much as half of this room

    try:
        found = version(package)
    except PackageNotFoundError:
        return (f"framework_version={wanted!r} asks for {package}, which is not installed here",)
    parts = str(wanted).split(".")
    same = found.split("+")[0].split(".")[: len(parts)] == parts
    return () if same else (f"framework_version={wanted!r}: what is installed here is {package} {found}",)


def not_fitted() -> UsageError:
    """The error for a question about a job before there is a job."""
    return UsageError(
        "U09",
        "this estimator has no training job yet",
        saw="fit() was not called",
        next="estimator.fit(...), or attach('JOB-NAME')",
    )
