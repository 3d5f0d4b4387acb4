"""Finds the recordings of runs that have ended and are old enough, and deletes them."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.recording.owner import stranger
from paceline.recording.runs import KnownRun, first_try, forget, is_run_id, runs_below
from paceline.user_names import user_name

# Not the id of a run, so that nothing takes the remains of an interrupted deletion for a recording.
_DELETED_PREFIX = ".pruned-"


@dataclass(frozen=True, slots=True)
class OldRun:
    """A run whose recording may be deleted."""

    id: str
    """Its id."""
    directories: tuple[Path, ...]
    """Its directories, one per try, the newest first."""
    age_seconds: float
    """Seconds since its newest file was written."""
    size_bytes: int
    """Bytes on the disk."""


def old_runs(
    root: Path, lasts: Callable[[Path], bool], *, older_than_seconds: float = 0.0, keep: int = 0
) -> list[OldRun]:
    """The runs below `root` that may go, the oldest first. All tries of a job are one run.

    The newest `keep` runs stay. So does a run that is younger, that lasts (`lasts` of one of its directories), that another user owns, or
    that is only linked from `root`.
    """
    jobs: dict[Path, list[KnownRun]] = {}
    for known in runs_below(root):
        if known.path.parent == root.resolve() and is_run_id(known.path.name):
            jobs.setdefault(first_try(known.path), []).append(known)
    found = []
    for first, tries in list(jobs.items())[keep:]:
        paths = tuple(one.path for one in tries)
        files = [status for path in paths for status in _files(path)]
        if not files:
            continue
        age = time.time() - max(status.st_mtime for status in files)
        own = all(status.st_uid == os.geteuid() for path in paths for status in _status(path))
        if own and age >= older_than_seconds and not any(map(lasts, paths)):
            found.append(OldRun(first.name, paths, age, sum(status.st_blocks * 512 for status in files)))
    return sorted(found, key=lambda run: -run.age_seconds)


def delete(run: OldRun) -> None:
    """Delete a run's directories, and its entries in the user's index.

    Raises:  OSError: something cannot be deleted
    """
    for path in run.directories:
        # A reader that comes now finds the whole recording or none.
        going = path.with_name(_DELETED_PREFIX + path.name)
        try:
            path.rename(going)
        except FileNotFoundError:
            continue  # another prune was faster
        shutil.rmtree(going)
        forget(path)


def delete_remains(root: Path) -> list[str]:
    """Delete what an interrupted deletion of the user's own left. Returns the reasons why something is left, each with its path."""
    kept = []
    for path in sorted(root.glob(f"{_DELETED_PREFIX}*")):
        if (found := stranger(path)) is not None:
            kept.append(f"{path} is left: it belongs to {user_name(found[1])}")
            continue
        try:
            shutil.rmtree(path)
        except OSError as error:
            kept.append(f"{error.filename or path} is left: {error.strerror or error}")
    return kept


def _files(path: Path) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(path):
        for name in ("", *names):
            yield from _status(Path(folder, name))


def _status(path: Path) -> Iterator[os.stat_result]:
    """The status of one file; nothing if another prune, or the run itself, has deleted the file."""
    with contextlib.suppress(FileNotFoundError):
        yield path.lstat()
