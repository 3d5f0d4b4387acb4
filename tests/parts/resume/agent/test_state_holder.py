"""What the agent reads from the state buffers of its ranks, and what it writes into them before an attempt."""

import os
import time
import zlib

import pytest

from paceline.parts.resume.agent.state_holder import StateHolder
from paceline.parts.resume.recording.state_buffer import SLOT_AT, Keeping, StateCell, StateHeader

PAGE = 4096


@pytest.fixture
def holder():
    made = StateHolder(2)
    yield made
    made.close()


def header(holder, local_rank):
    """The header as the rank sees it, by a descriptor of its own."""
    return StateHeader(os.dup(holder.descriptor(local_rank)))


def keep(holder, local_rank, step, plain=b"state"):
    """What a rank does after a step."""
    of_rank, slot = header(holder, local_rank), step % 2
    os.pwrite(of_rank.descriptor, plain, SLOT_AT[slot])
    for cell, value in (
        (StateCell.PLAIN_BYTES_0, len(plain)),
        (StateCell.PLAIN_CRC_0, zlib.crc32(plain)),
        (StateCell.TENSOR_BYTES_0, 0),
        (StateCell.STEP_0, step),
    ):
        of_rank.cells[cell + slot] = value
    of_rank.cells[StateCell.STEP_COUNT] = step
    of_rank.cells[StateCell.STEP_NS] = time.time_ns()
    of_rank.cells[StateCell.KEEPING] = Keeping.KEPT


def test_a_rank_that_has_kept_nothing_is_there_without_a_step(holder):
    holder.begin_attempt(None, 7 * PAGE)
    assert holder.kept(4) == {4: [], 5: []}
    assert header(holder, 1).cells[StateCell.ROOM_BYTES] == 7 * PAGE
    assert header(holder, 1).cells[StateCell.RESUME_STEP] == 0


def test_the_kept_steps_of_each_rank_are_told_the_newest_first(holder):
    for step in (6, 7):
        keep(holder, 0, step)
    keep(holder, 1, 6)
    assert holder.kept(2) == {2: [7, 6], 3: [6]} and holder.step_count() == 7


def test_a_state_whose_plain_values_were_changed_is_damaged_and_not_kept(holder):
    for step in (6, 7):
        keep(holder, 1, step)
    os.pwrite(holder.descriptor(1), b"S", SLOT_AT[1])
    assert holder.kept(2) == {2: [], 3: [6]} and holder.damaged(2) == [(3, 7)]


def test_a_resume_keeps_its_step_and_forgets_newer_ones(holder):
    for step in (6, 7):
        keep(holder, 0, step)
    keep(holder, 1, 6)
    holder.begin_attempt(6, PAGE)
    assert holder.kept(0) == {0: [6], 1: [6]}
    for rank in range(2):
        cells = header(holder, rank).cells
        assert [
            cells[cell]
            for cell in (StateCell.RESUME_STEP, StateCell.STEP_COUNT, StateCell.KEEPING, StateCell.RESUMED_NS)
        ] == [
            6,
            6,
            0,
            0,
        ]


def test_a_step_that_a_rank_has_not_kept_is_not_resumed_and_nothing_is_changed(holder):
    keep(holder, 0, 6)
    with pytest.raises(LookupError, match="step 6"):
        holder.begin_attempt(6, PAGE)
    assert holder.kept(0) == {0: [6], 1: []} and header(holder, 0).cells[StateCell.RESUME_STEP] == 0


def test_an_attempt_from_the_start_of_the_script_gives_the_memory_back(holder):
    keep(holder, 0, 6, os.urandom(100 * PAGE))
    assert holder.held_bytes() > 100 * PAGE
    holder.begin_attempt(None, PAGE)
    assert holder.held_bytes() < 10 * PAGE and holder.kept(0) == {0: [], 1: []} and holder.step_count() == 0
    assert header(holder, 0).cells[StateCell.MAGIC] and header(holder, 0).cells[StateCell.VERSION]


def test_a_state_that_does_not_match_its_checksum_is_not_kept(holder):
    keep(holder, 0, 6)
    keep(holder, 0, 7)
    os.pwrite(holder.descriptor(0), b"x", SLOT_AT[1])
    assert holder.kept(0) == {0: [6], 1: []}


@pytest.mark.parametrize("cell", [StateCell.PLAIN_BYTES_0, StateCell.TENSOR_BYTES_0, StateCell.STEP_0])
def test_numbers_that_a_crashing_rank_left_do_no_harm(holder, cell):
    keep(holder, 0, 6)
    header(holder, 0).cells[cell] = (1 << 64) - 1
    header(holder, 0).cells[StateCell.STEP_COUNT] = (1 << 64) - 1
    assert holder.kept(0) == {0: [], 1: []} and holder.step_count() == (1 << 63) - 1


def test_a_rank_that_has_refused_makes_the_host_keep_nothing(holder):
    keep(holder, 0, 6)
    header(holder, 1).cells[StateCell.KEEPING] = Keeping.REFUSED
    assert holder.refused() and holder.kept(0) is None
    holder.begin_attempt(None, PAGE)
    assert not holder.refused()


def test_a_state_that_could_not_be_put_back_is_kept_still(holder):
    for rank in range(2):
        keep(holder, rank, 6)
    holder.begin_attempt(6, PAGE)
    cells = header(holder, 1).cells
    cells[StateCell.KEEPING] = Keeping.REFUSED
    assert not holder.refused() and holder.kept(0) == {0: [6], 1: [6]}
    assert [holder.not_put_back(rank) for rank in range(2)] == [False, True]
    cells[StateCell.RESUMED_NS] = 1000
    assert holder.refused() and holder.kept(0) is None and not holder.not_put_back(1)


def test_a_rank_that_stopped_is_known_by_its_header(holder):
    header(holder, 1).cells[StateCell.KEEPING] = Keeping.STOPPED
    assert [holder.stopped(rank) for rank in range(2)] == [False, True]


def test_a_rank_that_writes_nothing_is_known_also_after_a_resume(holder):
    holder.begin_attempt(None, PAGE)
    keep(holder, 0, 6)
    assert [holder.is_silent(rank) for rank in range(2)] == [False, True]
    keep(holder, 1, 6)
    holder.begin_attempt(6, PAGE)
    assert [holder.is_silent(rank) for rank in range(2)] == [True, True]
    header(holder, 1).cells[StateCell.STEP_COUNT] = 7
    assert [holder.is_silent(rank) for rank in range(2)] == [True, False]


def test_the_first_step_after_a_resume_is_that_of_the_slowest_rank(holder):
    for rank in range(2):
        keep(holder, rank, 6)
    holder.begin_attempt(6, PAGE)
    cells = [header(holder, rank).cells for rank in range(2)]
    for of_rank, resumed_ns in zip(cells, (1000, 2000), strict=True):
        assert holder.first_step_ns(6) is None
        of_rank[StateCell.RESUMED_NS] = resumed_ns
    cells[0][StateCell.STEP_COUNT], cells[0][StateCell.STEP_NS] = 7, 1500
    assert holder.first_step_ns(6) is None
    # It has made four steps by now.
    cells[1][StateCell.STEP_COUNT], cells[1][StateCell.STEP_NS] = 10, 2400
    assert holder.first_step_ns(6) == 2100


def test_the_descriptors_do_not_reach_other_programs_and_are_closed_at_the_end():
    holder = StateHolder(1)
    descriptor = holder.descriptor(0)
    assert not os.get_inheritable(descriptor)
    holder.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
