"""Stand-ins for ranks that keep a state after each step, and what must be true of whatever was saved of them."""

import hashlib
import os
import zlib

from paceline.parts.resume.recording.plain_values import values_in
from paceline.parts.resume.recording.saved_state import MANIFEST, NoManifest, parse_manifest, step_of
from paceline.parts.resume.recording.state_buffer import DOCUMENT, SLOT_AT, StateCell, StateHeader, new_buffer, packed

COUNT = 3000
TENSOR_BYTES = 12288


class Rank:
    """A rank that keeps a state after each step: every byte of it is the step's."""

    def __init__(self, python="3.11.9", descriptor=None):
        """`descriptor`: of a buffer that is there; None: a new one is made."""
        self.python = python
        self.descriptor = new_buffer() if descriptor is None else descriptor
        self.header = StateHeader(self.descriptor)

    def keep(self, step):
        slot = step % 2
        self.begin(slot)
        self.seal(step, slot)

    def begin(self, slot):
        self.header.cells[StateCell.STEP_0 + slot] = 0
        self.header.cells[StateCell.WRITES_0 + slot] += 1

    def document(self, step):
        return dict.fromkeys(DOCUMENT) | {
            "described": [("int32", (COUNT,))], "versions": (self.python, "2.13.0"), "extra": step,
        }  # fmt: skip

    def tensors(self, step):
        return step.to_bytes(4, "little") * COUNT

    def seal(self, step, slot):
        plain = packed(tuple(self.document(step).values()))
        os.pwrite(self.descriptor, self.tensors(step), SLOT_AT[slot])
        os.pwrite(self.descriptor, plain, SLOT_AT[slot] + TENSOR_BYTES)
        for cell, value in (
            (StateCell.TENSOR_BYTES_0, TENSOR_BYTES),
            (StateCell.PLAIN_BYTES_0, len(plain)),
            (StateCell.PLAIN_CRC_0, zlib.crc32(plain)),
            (StateCell.BATCH_CRC_0, step + 1),
            (StateCell.STEP_0, step),
        ):
            self.header.cells[cell + slot] = value


def complete(store):
    """Step -> manifest of the saved steps, each of which holds that step's values and nothing else."""
    found = {}
    for folder in store.folders():
        text = store.content(f"{folder}/{MANIFEST}")
        if text is None:
            continue
        try:
            manifest = found[step_of(folder)] = parse_manifest(text)
        except NoManifest:
            continue
        for file in manifest.files:
            content = store.content(f"{folder}/{file.name}")
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size_bytes, file.sha256)
        for rank in manifest.ranks:
            tensors = store.content(f"{folder}/{rank.tensors.name}")
            assert tensors.endswith(manifest.step.to_bytes(4, "little") * COUNT)
            assert values_in(store.content(f"{folder}/{rank.plain.name}"))[DOCUMENT.index("extra")] == manifest.step
            assert rank.batch_crc == manifest.step
    return found
