"""The slots of a rank's state buffer."""

import os

import torch

from paceline.parts.resume.recording.state_buffer import new_buffer
from paceline.parts.resume.worker.slots import StateSlots


def held_bytes(descriptor):
    return os.fstat(descriptor).st_blocks * 512


def test_a_rank_that_keeps_nothing_more_gives_the_memory_back():
    descriptor = new_buffer()
    slots, tensor = StateSlots(descriptor), torch.ones(1 << 20)
    before = held_bytes(descriptor)
    for step in (1, 2):
        slots.write(step, [tensor], [("float32", tuple(tensor.shape))], b"plain")
    assert held_bytes(descriptor) - before > 2 * tensor.nbytes
    writes = [slots.header.writes(number) for number in (0, 1)]
    slots.forget()
    assert held_bytes(descriptor) == before and slots.header.steps() == ()
    # Who reads a slot meanwhile sees that it has changed.
    assert [slots.header.writes(number) for number in (0, 1)] == [count + 1 for count in writes]
    # A thread that was about to write does so.
    slots.write(3, [tensor], [("float32", tuple(tensor.shape))], b"plain")
    slots.forget()
    assert held_bytes(descriptor) == before
    os.close(descriptor)
