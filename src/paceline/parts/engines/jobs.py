"""Submits, finds, observes and cancels jobs, in the same way for every engine."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import UsageError
from paceline.facts import Channel, Contract, Job, Program
from paceline.job_file import JobFile
from paceline.launch.disk import refused_by_disk
from paceline.part import Observation
from paceline.parts.engines import endpoints
from paceline.parts.engines.base import Engine, Handle, Request, Sent, nobody_asks
from paceline.parts.engines.base import load as load_engine
from paceline.parts.engines.submission import Submission
from paceline.recording.evidence import read_run
from paceline.recording.layout import SUBMISSION_FILE, RunDirectory
from paceline.recording.owner import require_own, stranger
from paceline.recording.plain_files import read_plain
from paceline.recording.runs import create_run, newest_try, register
from paceline.recording.writer import EventLog, write_json
from paceline.storage.urls import shown

SCHEMA = "paceline.submission/2"
_BEFORE = "paceline.submission/1"
CODE_FILE = "code.tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job that an engine has accepted."""

    engine: str
    """Name of the engine."""
    handle: Handle
    """The data with which the engine finds the job."""
    job: Submission
    """The job without the values of its environment variables, which may be secrets."""
    submitted_ns: int
    """When it was submitted, in Unix ns."""


def make_run_dir(root: Path, run_id: str, mode: int | None = None) -> Path:
    """Make the directory of a job before its submission. The directory is private, unless `mode` says otherwise.

    The job's code is packed to `CODE_FILE` in this directory.

    Raises:  UsageError U22: the directory cannot be made, or has a recording already
    """
    with refused_by_disk("the directory of this job", "paceline submit --run-dir /a/directory/with/room ..."):
        return create_run(root, run_id, mode).path


def submit_job(job: Submission, engine: Engine, run_dir: Path, sent: Sent = nobody_asks) -> Request:
    """Submit the job to the engine and note its handle. If the engine refuses the job, nothing is left behind.

    `sent`: called while the engine uploads the code, if it does.

    Raises:  PacelineError: the engine refused the job, or could not be reached
    """
    try:
        request = engine.plan(job)
        handle = engine.submit(request, run_dir, sent)
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
    """Write the job's engine and handle to the run's directory, so that other commands find the job.

    Raises:  UsageError U22: the disk refused the write
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
        # Hyperparameters and an engine's options may be secrets, but they are needed to find the job again.
        write_json(run_dir / SUBMISSION_FILE, document, mode=0o600)
    register(job.run_id, run_dir)
    endpoints.remember(job.engine_options)


def without_secrets(job: Submission) -> Submission:
    """The job in a form that may be kept and shown: environment variables without values, URLs without user and password."""
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
    """The note of a job that was submitted from this machine; None: the run was started by hand.

    Raises:  UsageError U19: there is a note, but it cannot be read
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
            "U19",
            f"{file} does not say where the job went",
            saw=f"{type(error).__name__}: {error}",
            next=f"ls -l {run_dir}",
        ) from error


def _of_before(job: dict[str, Any]) -> Submission:
    """The job of a submission/1, an older format with flat fields. It has enough fields to find, watch and end the job."""
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
    """The state of the job. The call updates the recording if the engine can do that, and records an end that no agent has recorded.

    Raises:  PacelineError: the engine cannot be asked
    """
    job, engine = _found(run_dir, environ)
    seen = engine.observe(job.handle, run_dir)
    if seen.ended:
        note_end(newest_try(run_dir), seen)
    return seen


def note_end(path: Path, seen: Observation) -> None:
    """Write the end of the run to the recording, unless it is there already or the recording is another user's."""
    directory = RunDirectory(path)
    if stranger(path, directory.events_file) is not None:
        return
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


def logs(run_dir: Path, cursor: str | None, environ: Mapping[str, str]) -> tuple[Sequence[str], str | None]:
    """The job's output that the engine itself has kept since `cursor`, and the next cursor.

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
            "U19",
            f"{run_dir.name} was not given to an engine",
            saw=f"no {SUBMISSION_FILE} in {run_dir}",
            next=f"paceline why {run_dir.name}",
        )
    endpoints.require_named(job.job.engine_options, environ)
    return job, load_engine(job.engine, environ, job.job.engine_options)
