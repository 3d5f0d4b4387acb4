"""Holds the state buffers of this host's ranks over all attempts of a job, so that the state of a killed rank is not lost with it."""

import os
import zlib
from collections.abc import Iterator, Mapping

from paceline.parts.resume.recording import state_buffer
from paceline.parts.resume.recording.state_buffer import (
    HEADER_BYTES,
    SIZE_BYTES,
    SLOT_AT,
    STEPS_WITHOUT_HEAD,
    Keeping,
    KeptSlot,
    StateHeader,
    new_buffer,
)
from paceline.parts.resume.recording.state_piece import put_piece
from paceline.recording.rank_sets import newest_common

# The largest number that the messages between agents carry. A cell has one bit more.
_MOST = (1 << 63) - 1
_BLOCK_BYTES = 512


class StateHolder:
    """One state buffer for each local rank of this host."""

    def __init__(self, ranks: int) -> None:
        """`ranks`: number of ranks of this host.

        Raises:  OSError: the system has no such memory, or no descriptor is left
        """
        self._headers: list[StateHeader] = []
        try:
            for _ in range(ranks):
                self._headers.append(StateHeader(new_buffer()))
        except OSError:
            self.close()
            raise

    def descriptor(self, local_rank: int) -> int:
        """The descriptor of a rank's buffer. It stays the holder's, and closes in every program that this process starts."""
        return self._headers[local_rank].descriptor

    def fill(
        self, local_rank: int, step: int, tensors: Iterator[bytes], most_bytes: int, plain: bytes, batch_crc: int | None
    ) -> None:
        """Put a saved state into the buffer of a rank that has not started. `tensors`: the content of a piece of `most_bytes`.

        Raises:  PieceError: the piece is damaged; OSError: there is no room
        """
        header = self._headers[local_rank]
        cells, at = header.cells, SLOT_AT[0]
        cells[state_buffer.StateCell.STEP_0] = 0
        tensor_bytes = put_piece(tensors, header.descriptor, at, most_bytes)
        os.posix_fallocate(header.descriptor, at + tensor_bytes, len(plain))
        os.pwrite(header.descriptor, plain, at + tensor_bytes)
        cells[state_buffer.StateCell.TENSOR_BYTES_0] = tensor_bytes
        cells[state_buffer.StateCell.PLAIN_BYTES_0] = len(plain)
        cells[state_buffer.StateCell.PLAIN_CRC_0] = zlib.crc32(plain)
        cells[state_buffer.StateCell.BATCH_CRC_0] = 0 if batch_crc is None else batch_crc + 1
        cells[state_buffer.StateCell.STEP_0] = step

    def allow_other_sources(self) -> None:
        """Let the ranks put back their state although the user's files are other ones."""
        for header in self._headers:
            header.cells[state_buffer.StateCell.OTHER_SOURCES] = 1

    def begin_attempt(self, resume_step: int | None, room_bytes: int) -> None:
        """Write what the ranks of the next attempt need to know. No rank may be alive.

        `room_bytes`: memory that each rank may take for its state.

        Holds:   without `resume_step`, no state of an attempt before is kept
        Raises:  OSError: memory cannot be given back; LookupError: a rank has not kept `resume_step`
        """
        for header in self._headers:
            if resume_step is not None and header.slot_of(resume_step) is None:
                raise LookupError(f"a rank of this host has not kept step {resume_step}")
        for header in self._headers:
            cells = header.cells
            for slot in (state_buffer.StateCell.STEP_0, state_buffer.StateCell.STEP_1):
                # A state that is newer belongs to an attempt that other ranks do not go on from.
                if resume_step is None or cells[slot] > resume_step:
                    cells[slot] = 0
            if resume_step is None:
                os.ftruncate(header.descriptor, HEADER_BYTES)
                os.ftruncate(header.descriptor, SIZE_BYTES)
            cells[state_buffer.StateCell.RESUME_STEP] = cells[state_buffer.StateCell.STEP_COUNT] = resume_step or 0
            cells[state_buffer.StateCell.ROOM_BYTES] = max(0, room_bytes)
            cells[state_buffer.StateCell.KEEPING] = Keeping.NOT_YET
            cells[state_buffer.StateCell.RESUMED_NS] = 0

    def held_bytes(self) -> int:
        """Memory that all buffers take now."""
        return sum(os.fstat(header.descriptor).st_blocks * _BLOCK_BYTES for header in self._headers)

    def kept(self, first_rank: int) -> dict[int, list[int]] | None:
        """Global rank -> the steps whose state is kept, the newest first; None: a rank has refused to keep its state.

        A state whose plain values do not match their checksum is not kept. No rank may be alive.
        """
        if self.refused():
            return None
        found = {}
        for rank, header in enumerate(self._headers, first_rank):
            found[rank] = [slot.step for slot in header.slots() if _is_whole(header, slot)]
        return found

    def kept_in_common(self) -> int | None:
        """The newest step that all ranks of this host have kept so far; None: there is none."""
        return newest_common({number: header.steps() for number, header in enumerate(self._headers)})

    def damaged(self, first_rank: int) -> list[tuple[int, int]]:
        """Global rank and step of each state whose plain values do not match their checksum. No rank may be alive."""
        return [
            (rank, slot.step)
            for rank, header in enumerate(self._headers, first_rank)
            for slot in header.slots()
            if not _is_whole(header, slot)
        ]

    def refused(self) -> bool:
        """Whether a rank has said in this attempt that its state cannot be kept. What it could not put back is kept still."""
        return any(_has_refused(header.cells) and not _is_to_put_back(header.cells) for header in self._headers)

    def not_put_back(self, local_rank: int) -> bool:
        """Whether the rank has said in this attempt that its kept state cannot be put back."""
        cells = self._headers[local_rank].cells
        return _has_refused(cells) and _is_to_put_back(cells)

    def is_silent(self, local_rank: int) -> bool:
        """Whether the rank has written nothing in this attempt."""
        cells = self._headers[local_rank].cells
        counts = cells[state_buffer.StateCell.STEP_COUNT] != cells[state_buffer.StateCell.RESUME_STEP]
        return cells[state_buffer.StateCell.KEEPING] == Keeping.NOT_YET and not counts

    def may_go_on(self, step_counts: Mapping[int, int]) -> bool:
        """Whether every rank keeps its state, or may still come to the head of its training loop.

        `step_counts`: local rank -> the steps that it has made in this attempt.
        """
        # A rank that makes more steps than that and writes nothing does not know of its buffer.
        return not self.refused() and not any(
            step_counts.get(local_rank, 0) > STEPS_WITHOUT_HEAD and self.is_silent(local_rank)
            for local_rank in range(len(self._headers))
        )

    def stopped(self, local_rank: int) -> bool:
        """Whether the rank stopped because what it found is not what was kept."""
        return self._headers[local_rank].cells[state_buffer.StateCell.KEEPING] == Keeping.STOPPED

    def step_count(self) -> int:
        """The greatest number of steps that a rank has made, those before a resume included."""
        return min(_MOST, max((header.cells[state_buffer.StateCell.STEP_COUNT] for header in self._headers), default=0))

    def first_step_ns(self, resume_step: int) -> int | None:
        """When the last rank had made its first step after the resume, in Unix ns; None: a rank has not made it yet."""
        ends = [_first_step_ns(header.cells, resume_step) for header in self._headers]
        known = [end for end in ends if end is not None]
        return max(known, default=0) if len(known) == len(ends) else None

    def close(self) -> None:
        """Give up the buffers. Their memory is free when no rank has them any more."""
        for header in self._headers:
            os.close(header.descriptor)
        self._headers = []


def _has_refused(cells: "memoryview[int]") -> bool:
    return cells[state_buffer.StateCell.KEEPING] == Keeping.REFUSED


def _is_to_put_back(cells: "memoryview[int]") -> bool:
    return bool(cells[state_buffer.StateCell.RESUME_STEP]) and not cells[state_buffer.StateCell.RESUMED_NS]


def _is_whole(header: StateHeader, slot: KeptSlot) -> bool:
    # The rank wrote these numbers, and may have overwritten them as it crashed.
    held_bytes = os.fstat(header.descriptor).st_blocks * _BLOCK_BYTES
    possible = slot.step <= _MOST and slot.tensor_bytes + slot.plain_bytes <= held_bytes
    return possible and header.plain(slot) is not None


def _first_step_ns(cells: "memoryview[int]", resume_step: int) -> int | None:
    resumed_ns, made, last_ns = (
        cells[state_buffer.StateCell.RESUMED_NS],
        cells[state_buffer.StateCell.STEP_COUNT] - resume_step,
        cells[state_buffer.StateCell.STEP_NS],
    )
    if not resumed_ns or made < 1:
        return None
    # The cells show the last step. Where the ranks have made more than one by now, the first one ended about here.
    return min(_MOST, resumed_ns + max(0, last_ns - resumed_ns) // made)
