"""The two slots of this rank's state buffer: writes one while the other keeps the step before."""

from __future__ import annotations

import math
import os
import sys
import zlib
from typing import Any

from ....mapped_memory import discard, map_shared
from ..recording.state_buffer import SLOT_AT, KeptSlot, StateCell, StateHeader, is_buffer
from .object_graph import CannotKeep
from .tensors import layout

Described = list[tuple[str, tuple[int, ...]]]

_PAGE_BYTES = 4096
_STEP, _TENSOR_BYTES, _PLAIN_BYTES = int(StateCell.STEP_0), int(StateCell.TENSOR_BYTES_0), int(StateCell.PLAIN_BYTES_0)
_PLAIN_CRC, _BATCH_CRC = int(StateCell.PLAIN_CRC_0), int(StateCell.BATCH_CRC_0)
_WRITES = int(StateCell.WRITES_0)


class NoRoom(Exception):
    """The state does not fit into the memory that is left."""


class _Slot:
    """One slot, mapped as far as it has been used."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.size_bytes = 0
        self.memory: memoryview | None = None
        # Of the tensors whose copies `views` are: dtype and shape.
        self.described: Described = []
        self.views: list[Any] = []
        self.tensor_bytes = 0


class StateSlots:
    """Writes and reads the slots."""

    def __init__(self, descriptor: int) -> None:
        self.header = StateHeader(descriptor)
        self._slots = (_Slot(0), _Slot(1))

    def write(self, step: int, tensors: list[Any], described: Described, plain: bytes) -> int:
        """Keep a state, and return the number of its slot.

        Raises:  NoRoom; CannotKeep: the script has closed the buffer
        """
        torch = sys.modules["torch"]
        cells = self.header.cells
        slot = self._slots[0 if cells[_STEP] <= cells[_STEP + 1] else 1]
        n = slot.number
        cells[_STEP + n] = 0
        cells[_WRITES + n] += 1
        fits = slot.memory is not None and slot.tensor_bytes + len(plain) <= slot.size_bytes
        if not fits or described != slot.described:
            self._lay_out(slot, described, len(plain))
        if tensors:
            with torch.no_grad():
                torch._foreach_copy_(slot.views, tensors)
        assert slot.memory is not None
        slot.memory[slot.tensor_bytes : slot.tensor_bytes + len(plain)] = plain
        cells[_TENSOR_BYTES + n], cells[_PLAIN_BYTES + n] = slot.tensor_bytes, len(plain)
        cells[_PLAIN_CRC + n], cells[_BATCH_CRC + n] = zlib.crc32(plain), 0
        cells[_STEP + n] = step
        return n

    def note_batch(self, number: int, checksum: int) -> None:
        """Add the checksum of the batch that was taken next."""
        self.header.cells[_BATCH_CRC + number] = checksum + 1

    def read(self, slot: KeptSlot, described: Described) -> list[Any]:
        """The tensors of a slot, which share its memory. `described`: dtype and shape of each."""
        found = self._slots[slot.number]
        self._map(found, slot.tensor_bytes + slot.plain_bytes)
        return self._views(found, described)[0]

    def forget(self) -> None:
        """Keep nothing more, and give the memory back to the script."""
        cells = self.header.cells
        for slot in self._slots:
            cells[_STEP + slot.number] = 0
            cells[_WRITES + slot.number] += 1
            if slot.memory is not None:
                # The pages go and the map stays: another thread may be writing.
                discard(slot.memory)

    def _lay_out(self, slot: _Slot, described: Described, plain_bytes: int) -> None:
        tensor_bytes = layout(described)[1]
        # Plain values grow with the lists of a script.
        self._map(slot, tensor_bytes + plain_bytes + max(plain_bytes // 4, 1 << 16))
        slot.views, slot.tensor_bytes = self._views(slot, described)
        slot.described = described

    def _map(self, slot: _Slot, size_bytes: int) -> None:
        if size_bytes <= slot.size_bytes:
            return
        size_bytes = -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES
        room = self.header.cells[StateCell.ROOM_BYTES]
        if room and 2 * size_bytes > room:
            raise NoRoom(f"it needs {2 * size_bytes >> 20} MiB, and this rank may take {room >> 20} MiB")
        if not is_buffer(self.header.descriptor):
            raise CannotKeep(f"the script has closed descriptor {self.header.descriptor}, which it had not opened")
        try:
            # A page that is not available at its first write would be SIGBUS. Reserving it now makes it an error.
            os.posix_fallocate(self.header.descriptor, SLOT_AT[slot.number], size_bytes)
        except OSError as error:
            raise NoRoom(f"{size_bytes >> 20} MiB cannot be reserved: {error.strerror}") from error
        slot.views, slot.described = [], []
        slot.memory = map_shared(self.header.descriptor, size_bytes, offset=SLOT_AT[slot.number], populate=True)
        slot.size_bytes = size_bytes

    @staticmethod
    def _views(slot: _Slot, described: Described) -> tuple[list[Any], int]:
        torch = sys.modules["torch"]
        places, total = layout(described)
        views = []
        with torch.inference_mode(False):
            for at, (dtype, shape) in zip(places, described, strict=True):
                count = math.prod(shape)
                own = getattr(torch, dtype)
                views.append(
                    torch.frombuffer(slot.memory, dtype=own, count=count, offset=at).view(shape)
                    if count
                    else torch.empty(shape, dtype=own)
                )
        return views, total
