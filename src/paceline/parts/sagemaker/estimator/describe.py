"""Describes a submitted job in the format of SageMaker's DescribeTrainingJob, from its submission and its recording."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paceline.contract.describe import StatusTransition, job_progress
from paceline.contract.hyperparameters import to_wire
from paceline.facts import Channel, Run, Status
from paceline.part import Observation
from paceline.parts.engines.jobs import Submitted
from paceline.parts.engines.submission import Submission
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import newest_try


def description(found: Submitted, seen: Observation, run_dir: Path, now_ns: int) -> dict[str, Any]:
    """The answer, with SageMaker's field names. Unknown fields are left out, and values of `Environment` are hidden."""
    job, run = found.job, _run(run_dir)
    started, ended = run.started_ns or None, run.finished_ns
    made: dict[str, Any] = {
        "TrainingJobName": job.name,
        **job_progress(
            status=str(seen.status),
            secondary_status=str(seen.secondary_status),
            transitions=_transitions(seen, found.submitted_ns, started, ended),
            failure_reason=seen.reason if seen.status is Status.FAILED else None,
            model_url=model_address(found, run_dir),
            created=_time(found.submitted_ns),
            training_started=_time(started),
            ended=_time(ended),
            modified=_time(ended or now_ns),
            training_seconds=int(training_seconds(run_dir, now_ns)) if started else None,
        ),
        "HyperParameters": to_wire(job.hyperparameters, job.profile),
        "AlgorithmSpecification": job.platform.get("AlgorithmSpecification"),
        "RoleArn": job.platform.get("RoleArn") or job.engine_options.get("role"),
        "InputDataConfig": [_channel(channel) for channel in job.channels],
        "OutputDataConfig": {"S3OutputPath": job.output_url} if job.output_url else None,
        "ResourceConfig": {"InstanceCount": job.hosts, **job.platform.get("ResourceConfig", {})},
        "StoppingCondition": _limit(job),
        "CheckpointConfig": {"S3Uri": job.checkpoint_url} if job.checkpoint_url else None,
        "Environment": dict(job.environment),
        "ExitCode": str(seen.exit_code) if seen.exit_code is not None else None,
        "Paceline": {"RunId": job.run_id, "Engine": found.engine, "Directory": str(run_dir), "Tries": seen.tries},
    }
    return {name: value for name, value in made.items() if value is not None and value not in ({}, [])}


def model_address(found: Submitted, run_dir: Path) -> str:
    """The model's location after the end of the job: below the output path, or, without one, in the first host's directory tree."""
    if (output := found.job.output_url) is not None:
        # SageMaker appends the job's name to the output path; the other engines append the recording's name.
        name = found.job.name if found.engine == "sagemaker" else newest_try(run_dir).name
        return f"{output.rstrip('/')}/{name}/output/model.tar.gz"
    newest = newest_try(run_dir)
    return str(RunDirectory(newest).host(_run(run_dir).first_host or "algo-1") / "ml" / "model")


def training_seconds(run_dir: Path, now_ns: int) -> float:
    """Seconds from the recording's start to its end, or to now; 0 without a recording."""
    run = _run(run_dir)
    return ((run.finished_ns or now_ns) - run.started_ns) / 1e9 if run.started_ns else 0.0


def _run(run_dir: Path) -> Run:
    return read_run((RunDirectory(newest_try(run_dir)),))[0]


def _transitions(
    seen: Observation, submitted: int, started: int | None, ended: int | None
) -> Iterator[StatusTransition]:
    steps = [("Starting", min(submitted, started or submitted), started or ended)]
    if started:
        steps.append(("Training", started, ended))
    if seen.ended:
        steps.append((str(seen.secondary_status), ended or submitted, ended or submitted))
    for status, begin, end in steps:
        message = seen.reason if (status, begin, end) == steps[-1] else ""
        yield StatusTransition(status=status, started=_time(begin), ended=_time(end), message=message)


def _channel(channel: Channel) -> dict[str, Any]:
    source = {"S3DataType": channel.data_type, "S3Uri": channel.source, "S3DataDistributionType": channel.distribution}
    return {"ChannelName": channel.name, "DataSource": {"S3DataSource": source}, "InputMode": channel.input_mode}


def _limit(job: Submission) -> dict[str, Any] | None:
    more = job.platform.get("StoppingCondition", {})
    return {"MaxRuntimeInSeconds": int(job.max_run_seconds), **more} if job.max_run_seconds is not None else None


def _time(stamp_ns: int | None) -> datetime | None:
    return datetime.fromtimestamp(stamp_ns / 1e9, UTC) if stamp_ns else None
