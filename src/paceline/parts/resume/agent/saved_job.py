"""Where the state of a job is saved, and what a later job must have in common with it to go on from there."""

import hashlib
import os
import zipfile
from pathlib import Path

from paceline.facts import Job, ProgramKind
from paceline.parts.resume.recording.saved_state import PLACE_FILE, JobFacts
from paceline.recording.layout import STATE_FOLDER, RunDirectory
from paceline.recording.runs import attempt_of
from paceline.recording.writer import write_json
from paceline.storage.urls import CHECKPOINTS_FOLDER, below_checkpoints, shown


def place_of(job: Job, directory: RunDirectory) -> str:
    """The directory or URL of the job's saved steps. Where they are not in the recording, the recording says so.

    Raises:  OSError: the recording cannot be written
    """
    place = saving_place(job, directory)
    folder = directory.path / STATE_FOLDER
    if place != str(folder):
        write_json(folder / PLACE_FILE, {"place": shown(place)})
    return place


def saving_place(job: Job, directory: RunDirectory) -> str:
    """The directory or URL where a job saves its steps. All attempts of a submitted job have one place, as far as they share it at all."""
    if job.state_dir is not None:
        return job.state_dir
    if job.checkpoint_url is not None:
        return below_checkpoints(job.checkpoint_url, STATE_FOLDER)
    first = directory.path.name
    if job.submission_id is not None:
        first, _ = attempt_of(first, job.submission_id)
    return str(directory.path.with_name(first) / STATE_FOLDER)


def is_copied(job: Job) -> bool:
    """Whether a platform copies the saved steps of this job elsewhere, because they are in its directory of checkpoints."""
    return job.state_dir is not None and CHECKPOINTS_FOLDER in Path(job.state_dir).parts


def facts_of(job: Job, run_id: str, hash_seed: str) -> JobFacts:
    """What the manifest says of a job.

    Raises:  OSError: the script cannot be read
    """
    script = script_of(job)
    digest = hashlib.sha256(script.read_bytes()).hexdigest() if script is not None else ""
    return JobFacts(run_id, str(script or job.program.target), digest, hash_seed)


def script_of(job: Job) -> Path | None:
    """The file that the ranks run; None: they run a module."""
    if job.program.kind is not ProgramKind.SCRIPT:
        return None
    path = _path_of(job)
    return path / "__main__.py" if path.is_dir() else path


def is_container(job: Job) -> bool:
    """Whether the program is a directory or a zip application, in which Python finds the `__main__.py` by itself."""
    if job.program.kind is not ProgramKind.SCRIPT:
        return False
    path = _path_of(job)
    return path.is_dir() or zipfile.is_zipfile(path)


def _path_of(job: Job) -> Path:
    return Path(os.path.abspath(Path(job.contract.code_dir or "") / job.program.target))
