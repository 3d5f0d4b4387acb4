"""Writes the newest saved state of a run to one file that `torch.load` reads, in a process of the Python that has the ranks' torch."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from paceline.errors import UsageError
from paceline.parts.resume.recording.exported_state import ExportedContent, ExportedState
from paceline.parts.resume.recording.saved_state import MANIFEST, Manifest, folder_of
from paceline.parts.resume.recording.state_piece import PieceError
from paceline.parts.resume.saved_steps import checked, nothing_saved, place_of, plain_of, saved_steps
from paceline.parts.resume.state_store import StateStore, state_store
from paceline.storage.errors import told
from paceline.storage.urls import shown

_CODE = "U22"
_VERB = "paceline resume --export"
# A job that goes on removes its older steps.
_LOOKS = 3


def export_state(
    name: str, path: str, *, force: bool, environ: Mapping[str, str], runs_root: Path | None
) -> ExportedState:
    """Write rank 0's part of the newest saved step that is whole. `force`: replace a file that is there.

    Raises:  UsageError U09: no such run; F04: nothing that is whole is saved; F05: another Python; U22: the file cannot be written;
             E01, E51 to E53: the URL
    """
    _require_free(name, path, force)
    place = place_of(name, runs_root, verb=_VERB, may_run=True)
    store = state_store(place)
    with told("the saved state could not be read", place):
        for _ in range(_LOOKS):
            found, damaged = saved_steps(store)
            for manifest in found:
                content = _written(store, manifest, name, Path(path).absolute(), environ)
                if content is not None:
                    return ExportedState(path, manifest, content, tuple(damaged))
                damaged.append(manifest.step)
            if not any(_was_removed(store, manifest) for manifest in found):
                break
        raise nothing_saved(name, place, store, damaged, to_begin="paceline run --resume auto train.py")


def _require_free(name: str, path: str, force: bool) -> None:
    if Path(path).is_dir():
        raise _cannot_write(name, path, "it is a directory", f"{_VERB} {shown(name)} {path.rstrip('/')}/out.pt")
    if not force and Path(path).exists():
        raise _cannot_write(name, path, "a file is there already", f"{_VERB} {shown(name)} --force {path}")


def _was_removed(store: StateStore, manifest: Manifest) -> bool:
    return store.content(f"{folder_of(manifest.step)}/{MANIFEST}") is None


def _written(
    store: StateStore, manifest: Manifest, name: str, path: Path, environ: Mapping[str, str]
) -> ExportedContent | None:
    """What was written; None: the step is damaged, and nothing was written.

    Raises:  UsageError E01, F05, U22
    """
    python = environ.get("PYTHON_EXEC") or sys.executable
    with tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                [python, "-P", "-m", "paceline.parts.resume.worker.export_state"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                env=dict(environ),
            )
        except OSError as error:
            raise _no_answer(name, str(path), python, str(error)) from error
        with process:
            try:
                answer = _answer(process, _pieces(store, manifest, path))
            except (PieceError, FileNotFoundError):
                return None
            finally:
                # It writes nothing before the end of its input, which has not come where a piece was damaged.
                process.kill()
                _close(process.stdin)
        if answer is None:
            err.seek(0)
            lines = err.read().decode(errors="replace").strip().splitlines()
            raise _no_answer(name, str(path), python, lines[-1] if lines else f"exit code {process.returncode}")
    if answer.wrong:
        raise _refused(answer, manifest, name, str(path), python)
    return answer


def _pieces(store: StateStore, manifest: Manifest, path: Path) -> Iterator[bytes]:
    rank = manifest.ranks[0]
    facts: dict[str, Any] = {
        "step": manifest.step,
        "run_id": manifest.job.run_id,
        "saved_ns": manifest.saved_ns,
        "rank": 0,
        "world_size": manifest.world_size,
        "torch": manifest.torch,
    }
    plain = plain_of(store, manifest, rank)
    sizes = {"plain_bytes": len(plain), "tensor_file_bytes": rank.tensors.size_bytes}
    yield json.dumps({"out": str(path), "python": manifest.python, "facts": facts, **sizes}).encode() + b"\n"
    yield plain
    yield from checked(store, folder_of(manifest.step), rank.tensors)


def _answer(process: subprocess.Popen[bytes], pieces: Iterator[bytes]) -> ExportedContent | None:
    """What the process says once it has all pieces; None: it ended without a word."""
    assert process.stdin is not None and process.stdout is not None
    _give(process.stdin, pieces)
    said = process.stdout.read()
    process.wait()
    return msgspec.json.decode(said, type=ExportedContent) if said else None


def _give(stream: IO[bytes], pieces: Iterator[bytes]) -> None:
    for block in pieces:
        with suppress(BrokenPipeError):
            stream.write(block)
    _close(stream)


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with suppress(BrokenPipeError):
            stream.close()


# ---------------------------------------------------------------------------------------------------------------- errors


def _refused(answer: ExportedContent, manifest: Manifest, name: str, path: str, python: str) -> UsageError:
    match answer.wrong:
        case "python":
            minor = ".".join(manifest.python.split(".")[:2])
            return UsageError(
                "F05",
                f"the state was kept by Python {manifest.python}, and {python} is Python {answer.saw}",
                saw=f"step {manifest.step} of run {manifest.job.run_id}; the plain values differ between versions of Python",
                next=f"PYTHON_EXEC=/path/to/python{minor} {_VERB} {shown(name)} {path}",
            )
        case "torch":
            return UsageError(
                "E01",
                f"the saved state cannot be written to {path}: {python} has no torch",
                saw=answer.saw,
                next=f"PYTHON_EXEC=/path/to/a/python/with/torch {_VERB} {shown(name)} {path}",
            )
        case _:
            return _cannot_write(name, path, answer.saw, f"df -h {Path(path).parent}; ls -ld {Path(path).parent}")


def _cannot_write(name: str, path: str, saw: str, next_step: str) -> UsageError:
    return UsageError(_CODE, f"the saved state of {shown(name)} was not written to {path}", saw=saw, next=next_step)


def _no_answer(name: str, path: str, python: str, saw: str) -> UsageError:
    return _cannot_write(
        name, path, f"the process that writes it gave no answer: {saw}", f"{python} -c 'import torch, paceline'"
    )
