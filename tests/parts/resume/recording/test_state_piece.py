"""The tensors of a slot as a file, and back."""

import json
import os

import pytest

from paceline.parts.resume.recording.state_buffer import SLOT_AT, new_buffer
from paceline.parts.resume.recording.state_piece import PieceError, layout, piece_of, put_piece

DESCRIBED = [("float32", (2, 3)), ("int64", ()), ("bool", (5,)), ("complex128", (1,)), ("float32", (0, 4))]
SIZES = [24, 8, 5, 16, 0]


@pytest.fixture
def buffers():
    made = [new_buffer(), new_buffer()]
    for place, size in zip(layout(SIZES)[0], SIZES, strict=True):
        os.pwrite(made[0], os.urandom(size), SLOT_AT[1] + place)
    yield made
    for descriptor in made:
        os.close(descriptor)


def tensors(descriptor, slot):
    return [os.pread(descriptor, size, SLOT_AT[slot] + at) for at, size in zip(layout(SIZES)[0], SIZES, strict=True)]


def chopped(content, size):
    return iter([content[at : at + size] for at in range(0, len(content), size)])


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_what_was_written_comes_back_into_another_slot(buffers, block):
    content = b"".join(piece_of(buffers[0], SLOT_AT[1], DESCRIBED))
    assert put_piece(chopped(content, block), buffers[1], SLOT_AT[0], 1 << 20) == layout(SIZES)[1] == 4096
    assert tensors(buffers[1], 0) == tensors(buffers[0], 1)


def test_the_file_is_one_that_readers_of_safetensors_open(buffers):
    content = b"".join(piece_of(buffers[0], SLOT_AT[1], DESCRIBED))
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0 and all(isinstance(value, str) for value in header.pop("__metadata__").values())
    assert [header[name]["dtype"] for name in sorted(header)] == ["F32", "I64", "BOOL", "U8", "F32"]
    assert [header[name]["shape"] for name in sorted(header)] == [[2, 3], [], [5], [16], [0, 4]]
    # The format allows no byte between two tensors, and none behind the last one.
    assert [header[name]["data_offsets"] for name in sorted(header)] == [
        [0, 24],
        [24, 32],
        [32, 37],
        [37, 53],
        [53, 53],
    ]
    assert len(content) == 8 + length + 53


@pytest.mark.parametrize("left", [0, 7, 30, -1])
def test_a_cut_file_is_refused(buffers, left):
    content = b"".join(piece_of(buffers[0], SLOT_AT[1], DESCRIBED))
    with pytest.raises(PieceError, match="cut"):
        put_piece(iter([content[:left]]), buffers[1], SLOT_AT[0], 1 << 20)


@pytest.mark.parametrize(
    "content", [b"\xff" * 20, (2).to_bytes(8, "little") + b"[]", (4).to_bytes(8, "little") + b"{{{{"]
)
def test_a_file_of_another_kind_is_refused(buffers, content):
    with pytest.raises(PieceError):
        put_piece(iter([content]), buffers[1], SLOT_AT[0], 1 << 20)


def test_a_dtype_that_nobody_knows_is_refused_before_anything_is_written(buffers):
    with pytest.raises(PieceError, match="qint8"):
        next(piece_of(buffers[0], SLOT_AT[1], [("qint8", (2,))]))
