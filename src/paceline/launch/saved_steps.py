"""Finds the steps that a run has saved, and reads their files only as far as they are what the manifest says."""

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from paceline.errors import UsageError
from paceline.launch.agent.guardian import GRACE_SECONDS
from paceline.recording.runs import find_run, read_document
from paceline.recording.saved_state import (
    ENDED,
    MANIFEST,
    PLACE_FILE,
    STATE_FOLDER,
    Manifest,
    NoManifest,
    SavedFile,
    folder_of,
    parse_manifest,
    step_of,
)
from paceline.recording.state_piece import PieceError
from paceline.storage.state_store import StateStore, below_checkpoints, state_store
from paceline.storage.urls import below, is_url, shown

_LEFT_SECONDS = 30.0
_LEFT_POLL_SECONDS = 0.1
# A guardian ends what its agent has left within twice its grace.
_ORPHANED_SECONDS = 3 * GRACE_SECONDS


def place_of(name: str, runs_root: Path | None, *, verb: str, may_run: bool = False) -> str:
    """The directory or the URL that holds the saved steps of a run, a directory or a URL.

    `verb`: the command's name for error messages. `may_run`: whether the run may still be going on.

    Raises:  UsageError U09: no such run; F05: the run goes on, and may not
    """
    if is_url(name):
        return name if _is_place(state_store(name)) else below_checkpoints(name, STATE_FOLDER)
    path = Path(name).expanduser()
    if path.is_dir() and not (path / "run.json").exists():
        beside_checkpoints = path / ".paceline" / STATE_FOLDER
        return str(beside_checkpoints if beside_checkpoints.is_dir() else path.absolute())
    run = find_run(name, runs_root, verb=verb)
    _wait_until_it_has_left(run, may_run)
    noted = (
        read_document(run / STATE_FOLDER / PLACE_FILE).get("place")
        if (run / STATE_FOLDER / PLACE_FILE).exists()
        else None
    )
    return noted if isinstance(noted, str) else str((run / STATE_FOLDER).absolute())


def _is_place(store: StateStore) -> bool:
    return any(step_of(folder) is not None for folder in store.folders())


def _wait_until_it_has_left(run: Path, may_run: bool) -> None:
    """Of a run whose agent was killed, ranks may be left for a moment, and the last step may still be saved.

    Raises:  UsageError F05: the run goes on
    """
    path = read_document(run / "run.json").get("control_socket")
    if not isinstance(path, str):
        return
    if _answers(path):
        if may_run:
            return
        raise UsageError(
            "F05",
            f"run {run.name} has not ended",
            saw="its agent answers",
            next=f"paceline stop {run.name}",
        )
    # The guardian removes the directory of the socket when no process of the job is left.
    deadline = time.monotonic() + _LEFT_SECONDS
    while os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(_LEFT_POLL_SECONDS)


def wait_until_attempt_has_left(run: Path, grace_seconds: float) -> None:
    """An attempt of the same job before this one may still have processes on this host, which write to the same files.

    `grace_seconds`: how long its ranks, and then its last save, may take to end.

    Raises:  UsageError F05: it goes on
    """
    path = read_document(run / "run.json").get("control_socket") if (run / "run.json").exists() else None
    if not isinstance(path, str):
        return
    began = time.monotonic()
    while os.path.exists(path):
        answers, waited = _answers(path), time.monotonic() - began
        if answers and waited > 2 * grace_seconds + _LEFT_SECONDS:
            raise UsageError(
                "F05",
                f"the attempt {run.name} of this job has not ended",
                saw="its agent answers on this host",
                next=f"paceline stop {run.name}",
            )
        # A guardian that was killed as well removes nothing.
        if not answers and waited > _ORPHANED_SECONDS:
            return
        time.sleep(_LEFT_POLL_SECONDS)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        with suppress(OSError):
            connection.connect(path)
            return True
    return False


def saved_steps(store: StateStore) -> tuple[list[Manifest], list[int]]:
    """The steps with a manifest, the newest first, and those whose manifest is damaged."""
    found, damaged = [], []
    for step in sorted((step_of(folder) or 0 for folder in store.folders()), reverse=True):
        text = store.content(f"{folder_of(step)}/{MANIFEST}") if step else None
        if text is None:
            continue
        try:
            found.append(parse_manifest(text))
        except NoManifest:
            damaged.append(step)
    return sorted(found, key=lambda manifest: -manifest.saved_ns), damaged


def checked(store: StateStore, folder: str, file: SavedFile) -> Iterator[bytes]:
    """The content of a file. The last block comes only if all of it is what the manifest says.

    Raises:  PieceError: it is not; FileNotFoundError
    """
    digest, size, last = hashlib.sha256(), 0, b""
    for block in store.read(f"{folder}/{file.name}"):
        if last:
            yield last
        digest.update(block)
        size += len(block)
        last = block
    if (size, digest.hexdigest()) != (file.size_bytes, file.sha256):
        raise PieceError("its checksum does not match")
    yield last


def nothing_saved(name: str, place: str, store: StateStore, damaged: list[int], *, to_begin: str) -> UsageError:
    """The error for a place without a step that is whole. `to_begin`: the command that begins a job whose state is kept."""
    if store.content(ENDED) is not None and not damaged:
        return UsageError(
            "F04",
            f"there is nothing to go on from: the job of {shown(name)} ended well",
            saw=f"{shown(below(place, ENDED) if is_url(place) else place + '/' + ENDED)}, and no saved step",
            next=to_begin,
        )
    saw = f"every saved step is damaged: {', '.join(map(str, damaged))}" if damaged else "no saved step"
    return UsageError(
        "F04",
        f"there is no saved state to go on from: {shown(name)}",
        saw=f"{saw} in {shown(place)}",
        next=f"{to_begin}, which begins at the start",
    )
