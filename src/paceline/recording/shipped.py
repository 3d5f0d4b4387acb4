"""A submitted job runs a copy of its code. Finds the submitter's own file of a failure."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from paceline.facts import RankExit
from paceline.recording.layout import SUBMISSION_FILE
from paceline.recording.runs import first_try, read_document

# Below it every engine lays the code of a job.
_COPY = "/code/"


def with_own_file(exit: RankExit, directory: Path) -> RankExit:
    """The same exit, whose error has the submitter's own file if the recording in `directory` is of a job that ran a copy."""
    error = exit.error
    if error is None or error.file is None or (own := own_file(error.file, directory)) is None:
        return exit
    return replace(exit, error=replace(error, own_file=own))


def own_file(file: str, directory: Path) -> str | None:
    """The submitter's own file; None if nothing was shipped from this machine, or the file does not exist any more."""
    job = read_document(first_try(directory) / SUBMISSION_FILE).get("job")
    package = job.get("package") if isinstance(job, dict) else None
    shipped = package.get("directory") if isinstance(package, dict) else None
    if not isinstance(shipped, str):
        return None
    own = (Path(shipped) / relative for relative in _below_copy(file))
    return next((str(path) for path in own if path.is_file()), None)


def _below_copy(file: str) -> Iterator[str]:
    place = file.find(_COPY)
    while place >= 0:
        yield file[place + len(_COPY) :]
        place = file.find(_COPY, place + 1)
