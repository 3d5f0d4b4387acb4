"""Finds the steps that a run has saved, and reads their files only as far as they are what the manifest says."""

import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from paceline.errors import UsageError
from paceline.facts import Run
from paceline.launch.agent import guardian
from paceline.parts.resume.recording.plain_values import MOST_BYTES, loaded
from paceline.parts.resume.recording.saved_state import (
    ENDED,
    MANIFEST,
    PLACE_FILE,
    Manifest,
    NoManifest,
    SavedFile,
    SavedRank,
    folder_of,
    other_version_of,
    parse_manifest,
    step_of,
)
from paceline.parts.resume.recording.state_piece import PieceError
from paceline.parts.resume.state_store import StateStore, state_store
from paceline.recording.evidence import read_run
from paceline.recording.layout import STATE_FOLDER, RunDirectory
from paceline.recording.liveness import agent_gone
from paceline.recording.owner import require_own, stranger
from paceline.recording.runs import find_run, read_document
from paceline.storage.urls import below, below_checkpoints, is_url, shown

_LEFT_SECONDS = 30.0
_LEFT_POLL_SECONDS = 0.1
# A guardian takes less. After that, nobody ends what is left of the run.
_GUARDIAN_SECONDS = 6.0


def place_of(
    name: str,
    runs_root: Path | None,
    *,
    verb: str,
    may_run: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> str:
    """The directory or the URL that holds the saved steps of a run, a directory or a URL.

    `verb`: the command's name for error messages. `may_run`: whether the run may still be going on; if it may not, ranks whose agent and
    guardian are dead are ended. `say`: gets a sentence about them.

    Raises:  UsageError U09: no such run; F05: the run goes on, and may not
    """
    if is_url(name):
        return name if _is_place(state_store(name)) else below_checkpoints(name, STATE_FOLDER)
    path = Path(name).expanduser()
    if path.is_dir() and not (path / "run.json").exists():
        beside_checkpoints = path / ".paceline" / STATE_FOLDER
        return str(beside_checkpoints if beside_checkpoints.is_dir() else path.absolute())
    run = find_run(name, runs_root, verb=verb)
    own = str((run / STATE_FOLDER).absolute())
    if not may_run:
        require_own(run, run / "run.json", verb=f"{verb} {run}")
    # Of a run whose agent was killed, ranks may be left for a moment, and the last step may still be saved.
    if (control := _control_socket(run)) is not None and not (may_run and _answers(control)):
        _wait_until_left(run, control, 0.0, None if may_run else say, f"run {run.name} has not ended")
    place_file = run / STATE_FOLDER / PLACE_FILE
    # Where another user's recording says its state is, is not asked.
    noted = read_document(place_file).get("place") if stranger(run, place_file.parent, place_file) is None else None
    return noted if isinstance(noted, str) else own


def _is_place(store: StateStore) -> bool:
    return any(step_of(folder) is not None for folder in store.folders())


def wait_until_attempt_has_left(run: Path, grace_seconds: float, say: Callable[[str], None]) -> None:
    """An attempt of the same job before this one may still have processes on this host, which write to the same files.

    `grace_seconds`: how long its ranks, and then its last save, may take to end. `say`: gets a sentence about ranks whose
    agent and guardian are dead, which are ended.

    Raises:  UsageError F05: it goes on
    """
    if (path := _control_socket(run)) is not None:
        wait_seconds = 2 * grace_seconds + _LEFT_SECONDS
        _wait_until_left(run, path, wait_seconds, say, f"the attempt {run.name} of this job has not ended")


def _control_socket(run: Path) -> str | None:
    """The control socket of the caller's own run; of another user's nobody waits for what it names."""
    if stranger(run, run / "run.json") is not None:
        return None
    path = read_document(run / "run.json").get("control_socket")
    return path if isinstance(path, str) else None


def _wait_until_left(
    run: Path, path: str, wait_seconds: float, say: Callable[[str], None] | None, not_ended: str
) -> None:
    """Wait until no process of a run is left on this host. `path`: its control socket, which its guardian removes last.

    `wait_seconds`: how long its agent may still answer. `say`: None: ranks without agent and guardian are left alone. `not_ended`: of the
    error.

    Raises:  UsageError F05: it goes on
    """
    began = time.monotonic()
    while os.path.exists(path):
        answers, waited = _answers(path), time.monotonic() - began
        if answers and waited >= wait_seconds:
            raise UsageError("F05", not_ended, saw="its agent answers on this host", next=f"paceline stop {run.name}")
        if not answers and waited > _GUARDIAN_SECONDS and say is not None and _end_orphans(run, path, say):
            return
        if not answers and waited > _LEFT_SECONDS:
            return
        time.sleep(_LEFT_POLL_SECONDS)


def _end_orphans(run: Path, path: str, say: Callable[[str], None]) -> bool:
    """End the ranks of a run of this machine whose agent and guardian were killed. They would train on beside the new job.

    Whether nothing of the run is left.
    """
    facts, _, _ = read_run([RunDirectory(run)])
    if agent_gone(facts) is None:
        return False
    count = sum(guardian.end_job(mark, {}) for mark in marks_of(run, facts, os.path.dirname(path)))
    if count:
        say(
            f"the agent of run {run.name} and its guardian had been killed; processes of it that were left, and are ended now: {count}"
        )
    return True


def marks_of(run: Path, facts: Run, socket_dir: str) -> set[str]:
    """The marks of the jobs whose processes are the caller's own and say themselves that they are of this run and of its agent.

    A run that is not the caller's own, and a copy of a recording, have none: what a recording says ends nobody.
    """
    document = read_document(run / "run.json")
    if stranger(run, run / "run.json") is not None or document.get("directory") != os.path.realpath(run):
        return set()
    said = {
        b"PACELINE_RUN_ID": facts.id.encode(),
        b"PACELINE_AGENT_PID": str(facts.agent_pid).encode(),
        b"PACELINE_SOCKET_DIR": os.fsencode(socket_dir),
    }
    found = set()
    for pid in guardian.table():
        variables = _variables_of(pid)
        if all(variables.get(name) == value for name, value in said.items()) and b"PACELINE_MARK" in variables:
            found.add(variables[b"PACELINE_MARK"].decode(errors="replace"))
    return found


def _variables_of(pid: int) -> dict[bytes, bytes]:
    """The environment of a process of the caller's own; empty: it is another user's, or has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return {}
            return {name: value for name, _, value in (one.partition(b"=") for one in file.read().split(b"\0"))}
    except OSError:
        return {}


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
        if size > file.size_bytes:
            raise PieceError("it is longer than it was")
        last = block
    if (size, digest.hexdigest()) != (file.size_bytes, file.sha256):
        raise PieceError("its checksum does not match")
    yield last


def plain_of(store: StateStore, manifest: Manifest, rank: SavedRank) -> bytes:
    """The plain values of a rank, packed as the rank itself does it.

    Raises:  PieceError: they are not what the manifest says, or of no kind that is saved; FileNotFoundError
    """
    if rank.plain.size_bytes > MOST_BYTES:
        raise PieceError(f"its plain values are more than {MOST_BYTES} bytes")
    return loaded(b"".join(checked(store, folder_of(manifest.step), rank.plain)))


def nothing_saved(name: str, place: str, store: StateStore, damaged: list[int], *, to_begin: str) -> UsageError:
    """The error for a place without a step that is whole. `to_begin`: the command that begins a job whose state is kept."""
    if store.content(ENDED) is not None and not damaged:
        return UsageError(
            "F04",
            f"there is nothing to go on from: the job of {shown(name)} ended well",
            saw=f"{shown(below(place, ENDED) if is_url(place) else place + '/' + ENDED)}, and no saved step",
            next=to_begin,
        )
    if (other := _of_another_version(store, damaged)) is not None:
        return UsageError(
            "F05",
            f"the saved state of {shown(name)} is in a format of another version of paceline",
            saw=f"{other} in {shown(place)}",
            next=f"go on with the paceline that saved it, or {to_begin}, which begins at the start",
        )
    saw = f"every saved step is damaged: {', '.join(map(str, damaged))}" if damaged else "no saved step"
    return UsageError(
        "F04",
        f"there is no saved state to go on from: {shown(name)}",
        saw=f"{saw} in {shown(place)}",
        next=f"{to_begin}, which begins at the start",
    )


def _of_another_version(store: StateStore, damaged: list[int]) -> str | None:
    """The newest of these steps that another version of paceline has saved, in words; None: there is none."""
    for step in damaged:
        text = store.content(f"{folder_of(step)}/{MANIFEST}")
        if text is not None and (schema := other_version_of(text)) is not None:
            return f"step {step} is {schema}"
    return None
