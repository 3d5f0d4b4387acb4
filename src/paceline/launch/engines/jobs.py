"""Jobs that were given to an engine: given, found again, looked at, ended. The same for every engine."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import PacelineError, UsageError
from paceline.facts import Channel, Contract, Job, Program
from paceline.job_file import JobFile
from paceline.launch.disk import refused_by_disk
from paceline.launch.engines import endpoints
from paceline.launch.engines.base import Engine, Handle, Observation, Request
from paceline.launch.engines.base import load as load_engine
from paceline.launch.engines.submission import Submission
from paceline.recording.evidence import read_run
from paceline.recording.layout import SUBMISSION_FILE, RunDirectory
from paceline.recording.owner import require_own
from paceline.recording.plain_files import read_plain
from paceline.recording.runs import create_run, first_try, newest_try, register
from paceline.recording.writer import EventLog, write_json
from paceline.storage.urls import shown

SCHEMA = "paceline.submission/2"
_BEFORE = "paceline.submission/1"
CODE_FILE = "code.tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job that an engine has taken."""

    engine: str
    """Name of the engine."""
    handle: Handle
    """How the engine finds the job."""
    job: Submission
    """The job, without the values of its environment, which may be secrets."""
    submitted_ns: int
    """When it was submitted, in Unix ns."""


def make_run_dir(root: Path, run_id: str, mode: int | None = None) -> Path:
    """The directory of a job that is about to be submitted, private unless `mode` says otherwise.

    Its code is packed to `place / CODE_FILE`.

    Raises:  UsageError U22: it cannot be made, or holds a recording
    """
    with refused_by_disk("the directory of this job", "paceline submit --run-dir /a/directory/with/room ..."):
        return create_run(root, run_id, mode).path


def submit_job(job: Submission, engine: Engine, run_dir: Path) -> Request:
    """Give the job to the engine and note where it went; where it is refused, nothing stays behind.

    Raises:  PacelineError: the engine refused it, or could not be reached
    """
    try:
        request = engine.plan(job)
        handle = engine.submit(request, run_dir)
    except BaseException:
        shutil.rmtree(run_dir, ignore_errors=True)
        raise
    try:
        note(job, engine.name, handle, run_dir)
    except UsageError:
        engine.cancel(handle, run_dir, now=True)
        raise
    return request


def note(job: Submission, engine: str, handle: Handle, run_dir: Path) -> None:
    """Keep in the run's directory where the job went, so that other commands find it.

    Raises:  UsageError U22: the disk refused it
    """
    document = {
        "schema": SCHEMA,
        "engine": engine,
        "handle": dict(handle),
        "name": job.name,
        "job": msgspec.to_builtins(without_secrets(job), str_keys=True),
        "submitted_ns": time.time_ns(),
    }
    with refused_by_disk("where the job went", "paceline submit --run-dir /a/directory/with/room ..."):
        # Hyperparameters and an engine's options may be secrets, and are needed to find the job again.
        write_json(run_dir / SUBMISSION_FILE, document, mode=0o600)
    register(job.run_id, run_dir)
    endpoints.remember(job.engine_options)


def without_secrets(job: Submission) -> Submission:
    """The job as it may be kept and shown: names of environment variables and no values, URLs without user and password."""
    own = job.file.job
    shown_job = replace(
        own,
        contract=replace(
            own.contract,
            channels=tuple(replace(channel, source=shown(channel.source)) for channel in own.contract.channels),
        ),
        output_url=shown(own.output_url) if own.output_url else None,
        checkpoint_url=shown(own.checkpoint_url) if own.checkpoint_url else None,
    )
    return replace(job, file=replace(job.file, job=shown_job), environment=dict.fromkeys(job.environment, "***"))


def submitted(run_dir: Path) -> Submitted | None:
    """What is noted of a job that was given to an engine from here; None for a run that was started by hand.

    Raises:  UsageError E04: it is noted, and cannot be read
    """
    file = run_dir / SUBMISSION_FILE
    try:
        document: dict[str, Any] = json.loads(read_plain(file))
        return Submitted(
            engine=document["engine"],
            handle=document["handle"],
            job=_of_before(document["job"])
            if document["schema"] == _BEFORE
            else msgspec.convert(document["job"], Submission, str_keys=True),
            submitted_ns=document["submitted_ns"],
        )
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            "E04",
            f"{file} does not say where the job went",
            saw=f"{type(error).__name__}: {error}",
            next=f"ls -l {run_dir}",
        ) from error


def _of_before(job: dict[str, Any]) -> Submission:
    """The job of a submission/1, which had its fields side by side and options of `run` as words: enough to find, watch and end it."""
    contract = Contract(
        hyperparameters=job["hyperparameters"],
        profile=job["profile"],
        channels=msgspec.convert(job["channels"], tuple[Channel, ...]),
    )
    own = Job(
        name=job["name"],
        program=msgspec.convert(job["program"], Program),
        contract=contract,
        output_url=job["output_url"],
        checkpoint_url=job["checkpoint_url"],
        max_run_seconds=job["max_run_seconds"],
    )
    file = JobFile(
        job=own, run_id=job["run_id"], ranks_per_host=job["ranks_per_host"], run_dir_mode=job.get("run_dir_mode")
    )
    beside = ("package", "hosts", "environment", "retries", "engine_options", "platform")
    return msgspec.convert({"file": msgspec.to_builtins(file), **{name: job[name] for name in beside}}, Submission)


def observe(run_dir: Path, environ: Mapping[str, str]) -> Observation:
    """What became of the job; brings its recording up to date where the engine can, and notes there an end that no agent lived to note.

    Raises:  PacelineError: the engine cannot be asked
    """
    job, engine = _found(run_dir, environ)
    seen = engine.observe(job.handle, run_dir)
    if seen.ended:
        note_end(newest_try(run_dir), seen)
    return seen


def note_end(path: Path, seen: Observation) -> None:
    """Put the end into the recording, unless it is there."""
    directory = RunDirectory(path)
    if read_run((directory,))[0].finished_ns is not None:
        return
    EventLog(directory.events_file).append(
        {
            "t_ns": time.time_ns(),
            "event": "run_finished",
            "exit_code": seen.exit_code,
            "status": str(seen.status),
            "secondary_status": str(seen.secondary_status),
            "reason": seen.reason,
            "exits": [],
        }
    )


def brought_up_to_date(path: Path, environ: Mapping[str, str]) -> str | None:
    """Look at the job of a recording before somebody reads it; why that could not be done, None where it could or need not."""
    run_dir = first_try(path)
    if not (run_dir / SUBMISSION_FILE).exists() or read_run((RunDirectory(path),))[0].finished_ns is not None:
        return None
    try:
        observe(run_dir, environ)
    except PacelineError as error:
        return f"{error.what}: {error.saw}"
    return None


def logs(run_dir: Path, cursor: str | None, environ: Mapping[str, str]) -> tuple[Sequence[str], str | None]:
    """What the engine itself kept of the job's output since `cursor`, and the next cursor.

    Raises:  PacelineError: the engine cannot be asked
    """
    job, engine = _found(run_dir, environ)
    return engine.logs(job.handle, run_dir, cursor)


def cancel(run_dir: Path, environ: Mapping[str, str], *, now: bool = False) -> None:
    """End the job, wherever it runs.

    Raises:  PacelineError: the engine cannot be asked
    """
    job, engine = _found(run_dir, environ)
    engine.cancel(job.handle, run_dir, now=now)


def _found(run_dir: Path, environ: Mapping[str, str]) -> tuple[Submitted, Engine]:
    require_own(run_dir, run_dir / SUBMISSION_FILE, verb="paceline ps")
    job = submitted(run_dir)
    if job is None:
        raise UsageError(
            "E04",
            f"{run_dir.name} was not given to an engine",
            saw=f"no {SUBMISSION_FILE} in {run_dir}",
            next=f"paceline why {run_dir.name}",
        )
    endpoints.require_named(job.job.engine_options, environ)
    return job, load_engine(job.engine, environ, job.job.engine_options)
