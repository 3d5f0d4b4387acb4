"""The state buffer of a rank: unnamed memory that its agent holds and in which the rank keeps its training state. Standard library only.

    bytes 0 to 4095        header: cells of 8 bytes (see `StateCell`)
    SLOT_AT[0], SLOT_AT[1] two slots, each: tensors, then plain values

The rank writes one slot while the other one keeps the step before: it sets the slot's step to 0, writes tensors and plain values, their
sizes and the checksum of the plain values, and seals the slot by storing its step last. So a slot whose step is not 0 is whole, whenever
the rank is killed. The file is sparse: only pages that were written take memory.
"""

import marshal
import os
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ....mapped_memory import map_shared

MAGIC = int.from_bytes(b"PACESTAT", "little")
VERSION = 1
_NAME = "paceline-state"
HEADER_BYTES = 4096
# Far enough apart that no state of a host reaches the next one. Space that is not written takes no memory.
SLOT_AT = (1 << 40, 2 << 40)
SIZE_BYTES = 3 << 40
# A rank that has made more steps of an optimizer and kept none of them will keep none: there is no loop that can be followed.
STEPS_WITHOUT_HEAD = 20
# The plain values of a slot: a tuple of these, packed.
# `described`: dtype and shape of each tensor; `versions`: of Python and torch; `sources`: file of the user -> its checksum;
# `rank`: this rank and the number of ranks; `first`: the variables and their nodes before the training changed them.
DOCUMENT = (
    "cursors", "head_is_loop", "head_line", "frames", "modules", "others", "loaders", "buckets", "random", "gradients", "began",
    "nodes", "described", "files", "extra", "versions", "sources", "rank", "first", "exchanges",
)  # fmt: skip

# Before what marshal writes. Without it, packed values within packed values could not be told from a user's bytes.
_PACKED = b"\x93paceline packed\x00"


def packed(value: Any) -> bytes:
    """Plain values as a rank writes them for itself and its agent. The format is marshal's, which trusts what it reads."""
    # Version 4 is that of every Python that ranks and agent may have.
    return _PACKED + marshal.dumps(value, 4)


def unpacked(data: bytes) -> Any:
    """The values in `packed` bytes. They may come from a state buffer alone, never from a file (plain_values.py).

    Holds:   unpacked(packed(value)) == value
    """
    return marshal.loads(memoryview(data)[len(_PACKED) :])


def is_packed(data: bytes) -> bool:
    """Whether the bytes begin as `packed` ones."""
    return data.startswith(_PACKED)


class StateCell(IntEnum):
    """Index of each 8-byte cell of the header. New ones go at the end; a changed meaning is a new VERSION."""

    MAGIC = 0
    VERSION = 1
    # Of slot 0 and 1: the kept step, 0 while it is written; bytes of its tensors and plain values; checksum of the plain values.
    STEP_0 = 2
    STEP_1 = 3
    TENSOR_BYTES_0 = 4
    TENSOR_BYTES_1 = 5
    PLAIN_BYTES_0 = 6
    PLAIN_BYTES_1 = 7
    PLAIN_CRC_0 = 8
    PLAIN_CRC_1 = 9
    # Checksum of the batch that was taken next, plus 1; 0: it is not known.
    BATCH_CRC_0 = 10
    BATCH_CRC_1 = 11
    # Written by the agent before the ranks start: the step from which they go on, 0: from the beginning.
    RESUME_STEP = 12
    # Written by the agent: bytes that this rank may take for its slots.
    ROOM_BYTES = 13
    # Written by the rank: pid; state, a member of Keeping; every so many steps the state is kept.
    PID = 14
    KEEPING = 15
    EVERY = 16
    # Steps that were made, those before a restart included, and when the last one ended (Unix ns).
    STEP_COUNT = 17
    STEP_NS = 18
    # Median cost of keeping the state once, and of a step, in ns.
    KEEP_NS = 19
    STEP_MEDIAN_NS = 20
    # When the state was put back in this attempt (Unix ns); 0: it was not.
    RESUMED_NS = 21
    # The slot that is being restored must not be overwritten before the first step after it: number of the slot plus 1.
    RESTORED_SLOT = 22
    # How often the rank has begun to write slot 0 and 1: a reader that finds another number has read two states.
    WRITES_0 = 23
    WRITES_1 = 24
    # Written by the agent: 1 where the user's files may be other ones than those with which the state was kept.
    OTHER_SOURCES = 25


class Keeping(IntEnum):
    """Values of StateCell.KEEPING."""

    NOT_YET = 0  # no step has been made
    KEPT = 1
    REFUSED = 2  # the rank said why, as a notice
    STOPPED = 3  # the state that was put back was not the one kept: the run must not go on


@dataclass(frozen=True, slots=True)
class KeptSlot:
    """What a sealed slot holds."""

    number: int
    """0 or 1."""
    step: int
    """The step after which the state was taken; at least 1."""
    tensor_bytes: int
    """Size of the tensors, whole pages."""
    plain_bytes: int
    """Size of the plain values behind the tensors."""
    plain_crc: int
    """CRC-32 of the plain values."""
    batch_crc: int | None
    """Checksum of the batch that was taken next; None: it is not known."""


def new_buffer() -> int:
    """Descriptor of a new state buffer: memory without a name, empty, for one rank.

    Raises:  OSError: the system has no such memory
    """
    descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    os.ftruncate(descriptor, SIZE_BYTES)
    header = StateHeader(descriptor)
    header.cells[StateCell.MAGIC] = MAGIC
    header.cells[StateCell.VERSION] = VERSION
    return descriptor


def is_buffer(descriptor: int) -> bool:
    """Whether the descriptor is a state buffer's. A program may close it, and get the same number for a file of its own."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"/memfd:{_NAME}")
    except OSError:
        return False


class StateHeader:
    """The header of a state buffer, mapped. The descriptor stays open and is the caller's."""

    __slots__ = ("cells", "descriptor")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.cells = map_shared(descriptor, HEADER_BYTES).cast("Q")

    def slots(self) -> list[KeptSlot]:
        """The sealed slots, the newest first."""
        found = [slot for number in (0, 1) if (slot := self._slot(number)) is not None]
        return sorted(found, key=lambda slot: -slot.step)

    def slot_of(self, step: int) -> KeptSlot | None:
        """The sealed slot of this step; None: there is none."""
        return next((slot for slot in self.slots() if slot.step == step), None)

    def steps(self) -> tuple[int, ...]:
        """The steps whose state is kept, the newest first."""
        return tuple(slot.step for slot in self.slots())

    def writes(self, number: int) -> int:
        """How often the rank has begun to write slot `number`."""
        return self.cells[StateCell.WRITES_0 + number]

    def plain(self, slot: KeptSlot) -> bytes | None:
        """The plain values of a slot; None: they do not match their checksum."""
        found = os.pread(self.descriptor, slot.plain_bytes, SLOT_AT[slot.number] + slot.tensor_bytes)
        return found if zlib.crc32(found) == slot.plain_crc else None

    def _slot(self, number: int) -> KeptSlot | None:
        cells = self.cells
        step = cells[StateCell.STEP_0 + number]
        if not step:
            return None
        batch_crc = cells[StateCell.BATCH_CRC_0 + number]
        slot = KeptSlot(
            number,
            step,
            cells[StateCell.TENSOR_BYTES_0 + number],
            cells[StateCell.PLAIN_BYTES_0 + number],
            cells[StateCell.PLAIN_CRC_0 + number],
            batch_crc - 1 if batch_crc else None,
        )
        # A rank that still runs may have begun to write it meanwhile.
        return slot if cells[StateCell.STEP_0 + number] == step else None
