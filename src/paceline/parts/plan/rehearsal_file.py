"""Stores rehearsals: each has a directory below .paceline/rehearsals, with the recordings of its runs and rehearsal.json."""

import json
import os
from pathlib import Path

from paceline.errors import UsageError
from paceline.parts.plan.planner.rehearsal import Rehearsal, from_plain, to_plain
from paceline.recording.runs import REHEARSALS, runs_root
from paceline.recording.writer import write_json

FILE = "rehearsal.json"
LATEST = "latest"


def rehearsals_root() -> Path:
    """The folder of this directory's rehearsals, beside the folder of its runs."""
    return runs_root().parent / REHEARSALS


def new_folder(root: Path) -> Path:
    """An empty folder with a short unique name, ignored by version control.

    Raises:  UsageError U22: the folder cannot be written
    """
    folder = root / f"rh-{os.urandom(3).hex()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        ignore = root.parent / ".gitignore"
        if root.parent.name == ".paceline" and not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(
            "U22",
            "the rehearsal cannot be recorded",
            saw=f"{error.filename or folder}: {error.strerror}",
            next="PACELINE_HOME=/a/directory/with/room paceline bench --rehearse ...",
        ) from error
    return folder


def write_rehearsal(path: Path, rehearsal: Rehearsal) -> None:
    """Write the file atomically.

    Raises:  UsageError U22: the file cannot be written
    """
    try:
        write_json(path, to_plain(rehearsal))
    except OSError as error:
        raise UsageError(
            "U22",
            f"{path} cannot be written",
            saw=str(error.strerror),
            next="PACELINE_HOME=/a/directory/with/room paceline bench --rehearse ...",
        ) from error


def read_rehearsal(text: str, root: Path | None = None) -> Rehearsal:
    """The rehearsal that `text` names: "latest" (of this directory), its file, its directory, or its id.

    Raises:  UsageError U27: there is no such rehearsal, or it cannot be used
    """
    path = _path(text, root or rehearsals_root())
    try:
        rehearsal = from_plain(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else str(error)
        raise UsageError(
            "U27",
            f"{path} is no rehearsal that can be read",
            saw=reason,
            next="paceline bench --rehearse train.py --sizes 1,2",
        ) from None
    if not rehearsal.sizes:
        raise UsageError(
            "U27",
            f"{path} measured nothing",
            saw="it has no size",
            next="paceline bench --rehearse train.py --sizes 1,2",
        )
    return rehearsal


def _path(text: str, root: Path) -> Path:
    if text == LATEST:
        found = sorted(root.glob(f"rh-*/{FILE}"), key=lambda path: path.stat().st_mtime_ns)
        if not found:
            raise UsageError(
                "U27",
                "no rehearsal has been made here",
                saw=f"looked in {root}",
                next="paceline bench --rehearse train.py --sizes 1,2",
            )
        return found[-1]
    path = Path(text)
    if not path.exists() and os.sep not in text and (root / text).is_dir():
        path = root / text
    return path / FILE if path.is_dir() else path
