"""Saves the newest step that all ranks of a job have kept, from their state buffers to a directory or a URL.

The ranks go on meanwhile, and a rank may overwrite a slot that is read here. Then the save is given up before it has a manifest, and the
next newest step is tried: what is published is one state, whole.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from paceline.launch.agent.fork_server_client import memory_left_bytes
from paceline.parts.resume.recording.plain_values import stored
from paceline.parts.resume.recording.saved_state import (
    ENDED,
    MANIFEST,
    JobFacts,
    Manifest,
    NoManifest,
    SavedFile,
    SavedRank,
    folder_of,
    manifest_text,
    parse_manifest,
    step_of,
)
from paceline.parts.resume.recording.state_buffer import DOCUMENT, SLOT_AT, KeptSlot, StateHeader, unpacked
from paceline.parts.resume.recording.state_piece import BLOCK_BYTES, Described, piece_of
from paceline.parts.resume.state_store import StateStore
from paceline.recording.rank_sets import newest_common

_KEPT_STEPS = 2
_TRIES = 5


class _GivenUp(Exception):
    """Nobody needs the save any more."""


class _Overwritten(Exception):
    """A rank has begun to write the slot that was read."""


@dataclass(frozen=True, slots=True)
class SavedStep:
    """A save that is complete."""

    step: int
    """The step."""
    seconds: float
    """How long the save took."""
    size_bytes: int
    """Bytes of its files, without the manifest."""
    other_run: str = ""
    """Id of another run that saves to the same place meanwhile; empty: none is seen."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A sealed slot that is read."""

    header: StateHeader
    """Of the rank's buffer."""
    slot: KeptSlot
    """The slot in that buffer."""
    writes: int
    """How often that slot had been written."""
    plain: bytes
    """Its plain values."""
    described: Described
    """dtype and shape of its tensors."""
    versions: tuple[str, str]
    """Of the rank's Python and torch."""
    descriptor: int
    """Where the tensors are read from: the buffer, or a copy of the slot."""
    at: int
    """Where they begin there."""

    def require_unchanged(self) -> None:
        """Raises:  _Overwritten"""
        cells_slot = next((one for one in self.header.slots() if one.number == self.slot.number), None)
        if (
            cells_slot is None
            or cells_slot.step != self.slot.step
            or self.header.writes(self.slot.number) != self.writes
        ):
            raise _Overwritten


class StateSaving:
    """Saves steps of one job to one place."""

    def __init__(
        self,
        descriptors: Sequence[int],
        store: StateStore,
        job: JobFacts,
        memory_left: Callable[[], int] = memory_left_bytes,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`descriptors`: of the state buffers, in the order of the ranks. `memory_left`: bytes that a copy of the state may take.

        `is_over`: asked during a save, which ends without a result where it holds.
        """
        self._headers = [StateHeader(descriptor) for descriptor in descriptors]
        self._store = store
        self._job = job
        self._memory_left = memory_left
        self._is_over = is_over
        self._saved: int | None = None
        self._tokens: set[str] = set()
        # What was there before; of a manifest, when its step was saved. None: nobody has looked yet.
        self._found: dict[str, int | None] | None = None

    def save(self) -> SavedStep | None:
        """Save the newest step that all ranks have kept; None: it is saved already, or there is none that stays long enough.

        Raises:  PieceError, ValueError: the state cannot be written down; OSError, or what a store's library raises: it cannot be stored
        """
        if self._found is None:
            self._found = self._files_now()
        for _ in range(_TRIES):
            step = newest_common({rank: header.steps() for rank, header in enumerate(self._headers)})
            if step is None or step == self._saved:
                return None
            began = time.monotonic()
            try:
                manifest = self._publish(step)
            except _Overwritten:
                continue
            except _GivenUp:
                return None
            self._saved = step
            other_run = self._prune(step)
            size_bytes = sum(file.size_bytes for file in manifest.files)
            return SavedStep(step, time.monotonic() - began, size_bytes, other_run)
        return None

    def end(self) -> None:
        """The job has ended well: remove its saved steps, and say so to who wants to go on from them."""
        if self._found is None:
            self._found = self._files_now()
        if not self._keep_only((), self._manifests()):
            # Last: a full disk has room for it now.
            self._store.write(ENDED, [f'{{"run_id": "{self._job.run_id}", "ended_ns": {time.time_ns()}}}\n'.encode()])

    # ------------------------------------------------------------------------------------------------------------- save

    def _publish(self, step: int) -> Manifest:
        with ExitStack() as copies:
            sources = [self._source(header, step, copies) for header in self._headers]
            for source in sources:
                source.require_unchanged()
            token = secrets.token_hex(4)
            self._tokens.add(token)
            ranks = tuple(self._write_rank(rank, source, token) for rank, source in enumerate(sources))
            for source in sources:
                if source.descriptor == source.header.descriptor:
                    source.require_unchanged()
            python, torch = sources[0].versions
            manifest = Manifest(
                step=step, saved_ns=time.time_ns(), job=self._job, python=python, torch=torch, ranks=ranks
            )
            self._store.write(f"{folder_of(step)}/{MANIFEST}", [manifest_text(manifest)])
            return manifest

    def _source(self, header: StateHeader, step: int, copies: ExitStack) -> _Source:
        slot = header.slot_of(step)
        writes = 0 if slot is None else header.writes(slot.number)
        # Read again: the slot may have been overwritten before its writes were counted.
        if slot is None or header.slot_of(step) is None or (plain := header.plain(slot)) is None:
            raise _Overwritten
        document = dict(zip(DOCUMENT, unpacked(plain), strict=True))
        descriptor, at = header.descriptor, SLOT_AT[slot.number]
        # A disk is slower than a rank, which may write the slot again two kept steps later.
        if self._memory_left() > 2 * slot.tensor_bytes:
            descriptor, at = _copy_of(header.descriptor, at, slot.tensor_bytes), 0
            copies.callback(os.close, descriptor)
        return _Source(header, slot, writes, plain, document["described"], document["versions"], descriptor, at)

    def _write_rank(self, rank: int, source: _Source, token: str) -> SavedRank:
        folder, name = folder_of(source.slot.step), f"rank-{rank}.{token}"
        tensors = self._write(folder, f"{name}.safetensors", piece_of(source.descriptor, source.at, source.described))
        plain = self._write(folder, f"{name}.msgpack", [stored(source.plain)])
        return SavedRank(tensors=tensors, plain=plain, batch_crc=_batch_of(source))

    def _write(self, folder: str, name: str, blocks: Iterable[bytes]) -> SavedFile:
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for block in blocks:
                if self._is_over():
                    raise _GivenUp
                digest.update(block)
                size += len(block)
                yield block

        self._store.write(f"{folder}/{name}", counted())
        return SavedFile(name=name, size_bytes=size, sha256=digest.hexdigest())

    def _prune(self, newest: int) -> str:
        """Keep what was saved now and the complete step before it. Returns the id of another run that saves here, or nothing."""
        self._store.remove(ENDED)
        manifests = self._manifests()
        mine = [one for one in manifests.values() if one is not None and self._may_remove(one)]
        others = self._keep_only(
            sorted(mine, key=lambda one: (one.step == newest, one.saved_ns))[-_KEPT_STEPS:], manifests
        )
        return max(others, key=lambda one: one.saved_ns).job.run_id if others else ""

    def _keep_only(self, kept: Sequence[Manifest], manifests: Mapping[int, Manifest | None]) -> list[Manifest]:
        """Remove every other file that was there before this job, or is of this job. Returns the steps of other jobs."""
        named = {
            f"{folder_of(one.step)}/{name}" for one in kept for name in (MANIFEST, *(file.name for file in one.files))
        }
        others = [one for one in manifests.values() if one is not None and not self._may_remove(one)]
        named |= {f"{folder_of(one.step)}/{MANIFEST}" for one in others}
        for step in manifests:
            folder = folder_of(step)
            names = self._store.files(folder)
            removed = [name for name in names if self._is_mine(f"{folder}/{name}") and f"{folder}/{name}" not in named]
            # First the manifest: a step that is half removed does not exist.
            if MANIFEST in removed:
                self._store.remove(f"{folder}/{MANIFEST}")
            if len(removed) == len(names):
                # All at once: a store of objects has one request for many of them.
                self._store.remove(folder)
                continue
            for name in removed:
                self._store.remove(f"{folder}/{name}")
        return others

    def _manifests(self) -> dict[int, Manifest | None]:
        """For each step that has a directory, its manifest; None: it has none."""
        steps = (step_of(folder) for folder in self._store.folders())
        return {step: self._manifest(step) for step in steps if step is not None}

    def _files_now(self) -> dict[str, int | None]:
        """Every file of the steps that are there, and of a manifest when its step was saved."""
        found: dict[str, int | None] = {}
        for step, manifest in self._manifests().items():
            found |= {f"{folder_of(step)}/{name}": None for name in self._store.files(folder_of(step))}
            if manifest is not None:
                found[f"{folder_of(step)}/{MANIFEST}"] = manifest.saved_ns
        return found

    def _may_remove(self, manifest: Manifest) -> bool:
        there = (self._found or {}).get(f"{folder_of(manifest.step)}/{MANIFEST}")
        return manifest.job.run_id == self._job.run_id or manifest.saved_ns == there

    def _is_mine(self, path: str) -> bool:
        """Whether this job wrote a file, or found it when it began: job before job leaves its steps."""
        return (
            path.endswith(f"/{MANIFEST}") or path in (self._found or {}) or not self._tokens.isdisjoint(path.split("."))
        )

    def _manifest(self, step: int) -> Manifest | None:
        text = self._store.content(f"{folder_of(step)}/{MANIFEST}")
        try:
            return None if text is None else parse_manifest(text)
        except NoManifest:
            return None


def _batch_of(source: _Source) -> int | None:
    """The checksum of the next batch, which the rank adds when it has taken that batch."""
    slot = source.header.slot_of(source.slot.step)
    is_there = slot is not None and source.header.writes(slot.number) == source.writes
    return slot.batch_crc if slot is not None and is_there else source.slot.batch_crc


def _copy_of(descriptor: int, at: int, size: int) -> int:
    """Descriptor of a copy of a part of a state buffer."""
    copy = os.memfd_create("paceline-saved-state", os.MFD_CLOEXEC)
    try:
        for done in range(0, size, BLOCK_BYTES):
            os.pwrite(copy, os.pread(descriptor, min(BLOCK_BYTES, size - done), at + done), done)
        os.ftruncate(copy, size)
    except BaseException:
        os.close(copy)
        raise
    return copy
