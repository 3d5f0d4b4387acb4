"""Jobs of this directory's recordings that were given to an engine, which knows of them what no recording does."""

from collections.abc import Mapping
from pathlib import Path

from paceline.errors import PacelineError, UsageError
from paceline.part import SubmittedJob, first_answer, parts
from paceline.recording.evidence import read_run
from paceline.recording.layout import SUBMISSION_FILE, RunDirectory
from paceline.recording.runs import first_try, is_submitted, read_document


def submitted_job(path: Path, environ: Mapping[str, str]) -> SubmittedJob:
    """The job of which this recording is a try.

    Raises:  UsageError E01: no part that is here knows its engine
    """
    run_dir = first_try(path)
    job = first_answer(part.submitted(run_dir, environ) for part in parts())
    if job is not None:
        return job
    raise UsageError(
        "E01",
        f"nothing here can ask the engine of {run_dir.name}",
        saw=f"{run_dir / SUBMISSION_FILE} names {read_document(run_dir / SUBMISSION_FILE).get('engine')}",
        next="the same command with the paceline that submitted the job",
    )


def brought_up_to_date(path: Path, environ: Mapping[str, str]) -> str | None:
    """Observe the job of a recording before the recording is read. Returns why this failed; None: it succeeded, or was not needed."""
    if not is_submitted(path) or read_run((RunDirectory(path),))[0].finished_ns is not None:
        return None
    try:
        submitted_job(path, environ).observe()
    except PacelineError as error:
        return f"{error.what}: {error.saw}"
    return None
