"""What a run begins with: the start of the script, or a saved state, which is checked and put into the state buffers of the ranks.

A user names it with `--resume RUN|URL|DIRECTORY`. A further attempt of a submitted job looks for it by itself.
"""

import errno
import hashlib
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from paceline.errors import UsageError
from paceline.facts import Job
from paceline.own_program import code_argv
from paceline.part import Beginning
from paceline.parts.resume.agent.saved_job import saving_place, script_of
from paceline.parts.resume.agent.state_holder import StateHolder
from paceline.parts.resume.recording.saved_state import Manifest, folder_of
from paceline.parts.resume.recording.state_piece import PieceError
from paceline.parts.resume.replicas import difference
from paceline.parts.resume.saved_steps import (
    checked,
    nothing_saved,
    place_of,
    plain_of,
    saved_steps,
    wait_until_attempt_has_left,
)
from paceline.parts.resume.state_store import StateStore, state_store
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import attempt_of
from paceline.storage.errors import told
from paceline.storage.urls import shown

_CODE = "F05"
_AT_START = "the job begins at the start of the script"
_VERSIONS = (
    "import sys; from importlib import metadata\n"
    "print(sys.version.split()[0])\n"
    "try: print(metadata.version('torch'))\n"
    "except metadata.PackageNotFoundError: print()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedState(Beginning):
    """The state from which a job goes on, in the buffers of its ranks."""

    states: StateHolder
    """The state buffers."""


def beginning(job: Job, run_id: str | None, environ: Mapping[str, str], runs_root: Path) -> Beginning:
    """What the run begins with. A further attempt of a submitted job prefers its own saved steps to a state that the user named.

    An attempt that an engine has started has no user who could answer. So where its own steps are damaged or are not those of this job, it
    begins at the start and says so; where they cannot be read, it ends, and they stay as they are.

    Raises:  UsageError: as load_state
    """
    own = Beginning()
    if job.resume and job.max_hosts == 1 and job.submission_id is not None and run_id is not None:
        own = _beginning_of_attempt(job, run_id, job.submission_id, environ, runs_root)
    if own.step is not None or job.resume_from is None:
        return own
    named = load_state(job, environ, runs_root)
    return replace(named, notices=(*own.notices, *named.notices))


def load_state(job: Job, environ: Mapping[str, str], runs_root: Path) -> LoadedState:
    """The saved state that `job.resume_from` names. No process has been started.

    Raises:  UsageError U09: no such run; F04: nothing that is whole is saved there; F05: it is the state of another job;
             F13: no room; E01, E51 to E53: the URL
    """
    name = job.resume_from
    assert name is not None
    if job.max_hosts > 1:
        raise UsageError(
            _CODE,
            "a job of several hosts cannot go on from a saved state yet",
            saw=f"--nnodes {job.max_hosts} --resume {shown(name)}",
            next="leave --nnodes out, or use --resume auto",
        )
    said: list[str] = []
    place = place_of(name, runs_root, verb="paceline run --resume", say=said.append)
    store = state_store(place, own_verb="paceline run --resume")
    with told("the saved state could not be read", place):
        found, damaged = saved_steps(store)
        loaded = _newest_whole(job, store, found, damaged, environ, name)
        if loaded is None:
            raise nothing_saved(name, place, store, damaged, to_begin="paceline run --resume auto ...")
        return replace(loaded, notices=(*said, *loaded.notices))


def _newest_whole(
    job: Job, store: StateStore, found: list[Manifest], damaged: list[int], environ: Mapping[str, str], name: str
) -> LoadedState | None:
    """The newest of the found steps of which each file is whole; None: there is none. Those that are not are added to `damaged`.

    Raises:  UsageError F05: it is the state of another job; F13: no room
    """
    states = StateHolder(job.ranks_per_host)
    try:
        for manifest in found:
            _require_same_job(job, manifest, environ, name)
            if manifest.world_size != job.ranks_per_host and not _is_alike(store, manifest, job, name):
                damaged.append(manifest.step)
                continue
            if _fill(states, store, manifest, job.ranks_per_host):
                if job.resume_anyway:
                    states.allow_other_sources()
                seed = manifest.job.hash_seed
                return LoadedState(
                    states=states,
                    step=manifest.step,
                    hash_seed=int(seed) if seed.isdecimal() else None,
                    notices=_notices(manifest, damaged),
                )
            damaged.append(manifest.step)
    except BaseException:
        states.close()
        raise
    states.close()
    return None


def _beginning_of_attempt(
    job: Job, run_id: str, submission_id: str, environ: Mapping[str, str], runs_root: Path
) -> Beginning:
    first, number = attempt_of(run_id, submission_id)
    if number == 1 and job.state_dir is None:
        return Beginning()
    said: list[str] = []
    for earlier in range(1, number):
        run = runs_root / (first if earlier == 1 else f"{first}.{earlier}")
        wait_until_attempt_has_left(run, job.stop_grace_seconds, said.append)
    found = _newest_of_job(job, run_id, submission_id, environ, runs_root)
    return replace(found, notices=(*said, *found.notices))


def _newest_of_job(job: Job, run_id: str, submission_id: str, environ: Mapping[str, str], runs_root: Path) -> Beginning:
    """The newest whole step that an attempt of this job has saved."""
    first, _ = attempt_of(run_id, submission_id)
    place = saving_place(job, RunDirectory(runs_root.absolute() / run_id))
    store = state_store(place, own_verb="paceline run --resume")
    with told("the saved state could not be read", place):
        every, damaged = saved_steps(store)
        own = [one for one in every if attempt_of(one.job.run_id, submission_id)[0] == first]
        try:
            loaded = _newest_whole(job, store, own, damaged, environ, place)
        except UsageError as refused:
            if refused.code != _CODE:
                raise
            return Beginning(notices=(f"{refused.what} ({refused.saw}): {_AT_START} (F05)",))
    if loaded is not None:
        return replace(loaded, is_named=False)
    if damaged:
        steps = ", ".join(map(str, damaged))
        return Beginning(notices=(f"the saved state of step {steps} in {shown(place)} is damaged: {_AT_START} (F04)",))
    if every:
        others = f"step {every[0].step} in {shown(place)} is that of run {every[0].job.run_id}, not of this job"
        return Beginning(notices=(f"{others}: {_AT_START} (F05)",))
    return Beginning(notices=(f"no step of this job is saved in {shown(place)}: {_AT_START}",))


def _notices(manifest: Manifest, damaged: list[int]) -> tuple[str, ...]:
    ago = max(0, time.time_ns() - manifest.saved_ns) // 1_000_000_000
    goes_on = f"goes on at step {manifest.step} of run {manifest.job.run_id}, which was saved {ago} s ago (F01)"
    lost = [f"the saved state of step {step} is damaged, step {manifest.step} is taken (F04)" for step in damaged]
    return (*lost, goes_on)


# ------------------------------------------------------------------------------------------------------------------- what


def _fill(states: StateHolder, store: StateStore, manifest: Manifest, ranks: int) -> bool:
    """Whether every file is what the manifest says. Then the buffers hold the step. A rank that was not there gets rank 0's state."""
    folder = folder_of(manifest.step)
    for local_rank in range(ranks):
        rank = manifest.ranks[local_rank if local_rank < manifest.world_size else 0]
        try:
            plain = plain_of(store, manifest, rank)
            tensors = checked(store, folder, rank.tensors)
            states.fill(local_rank, manifest.step, tensors, rank.tensors.size_bytes, plain, rank.batch_crc)
            if any(tensors):
                return False
        except (PieceError, FileNotFoundError):
            return False
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise UsageError(
                "F13",
                "there is no room for the saved state",
                saw=f"{rank.tensors.size_bytes >> 20} MiB for rank {local_rank}: {error.strerror}",
                next="free -h; df -h /dev/shm",
            ) from error
    return True


def _is_alike(store: StateStore, manifest: Manifest, job: Job, name: str) -> bool:
    """Whether every file is what the manifest says, of a step that another number of ranks goes on from.

    Raises:  UsageError F05: ranks have tensors of their own
    """
    try:
        text = difference(store, manifest)
    except (PieceError, FileNotFoundError):
        return False
    if text is None:
        return True
    raise UsageError(
        _CODE,
        f"the state is that of {manifest.world_size} ranks, and the job has {job.ranks_per_host}",
        saw=f"step {manifest.step} of run {manifest.job.run_id}: {text}",
        next=f"paceline run --resume {shown(name)} --nproc-per-node {manifest.world_size} ...",
    )


# ---------------------------------------------------------------------------------------------------------- the same job


def _require_same_job(job: Job, manifest: Manifest, environ: Mapping[str, str], name: str) -> None:
    """Raises:  UsageError F05: the job is not the one whose state was saved"""
    python, torch = _versions(environ)
    if _minor(python) != _minor(manifest.python):
        raise UsageError(
            _CODE,
            f"the state was kept by Python {manifest.python}, and the ranks would run Python {python}",
            saw=f"step {manifest.step} of run {manifest.job.run_id}; the plain values differ between versions of Python",
            next=f"use Python {_minor(manifest.python)}, or PYTHON_EXEC=/path/to/python{_minor(manifest.python)}",
        )
    seed = environ.get("PYTHONHASHSEED")
    if seed is not None and seed != manifest.job.hash_seed:
        raise UsageError(
            _CODE,
            f"PYTHONHASHSEED was {manifest.job.hash_seed}, and is {seed} now",
            saw="the order of sets would be another one",
            next="unset PYTHONHASHSEED",
        )
    if job.resume_anyway:
        return
    script = script_of(job)
    digest = hashlib.sha256(script.read_bytes()).hexdigest() if script is not None else ""
    if digest != manifest.job.script_sha256:
        raise UsageError(
            _CODE,
            f"{script or job.program.target} is not the script whose state was saved",
            saw=f"step {manifest.step} is of {manifest.job.script}, with another checksum",
            next=f"paceline run --resume {shown(name)} --set resume_anyway=true ..., if the change touches no loop, model or variable",
        )
    if torch and _public(torch) != _public(manifest.torch):
        raise UsageError(
            _CODE,
            f"the state was kept by torch {manifest.torch}, and the ranks would use torch {torch}",
            saw=f"step {manifest.step} of run {manifest.job.run_id}",
            next=f"pip install torch=={_public(manifest.torch)}, or --set resume_anyway=true: the numbers may differ from here on",
        )


def _versions(environ: Mapping[str, str]) -> tuple[str, str]:
    """The versions of Python and torch with which the ranks would run; empty: torch's is not known."""
    python = environ.get("PYTHON_EXEC")
    if not python:
        with suppress(metadata.PackageNotFoundError):
            return sys.version.split()[0], metadata.version("torch")
        return sys.version.split()[0], ""
    said = subprocess.run(code_argv(python, _VERSIONS), capture_output=True, text=True, env=dict(environ), check=False)
    lines = [*said.stdout.splitlines(), "", ""]
    return lines[0], lines[1]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _public(version: str) -> str:
    return version.partition("+")[0]
