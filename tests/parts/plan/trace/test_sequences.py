"""Packed sequences are those of torch, element for element."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

from paceline.parts.plan.trace.sequences import packed, unpacked  # noqa: E402

LENGTHS = torch.tensor([7, 5, 5, 2, 1])


@pytest.mark.parametrize("batch_first", [True, False])
def test_packing_and_padding_give_what_torch_gives(batch_first):
    padded = torch.arange(5.0 * 7 * 3).reshape((5, 7, 3) if batch_first else (7, 5, 3))
    theirs = pack_padded_sequence(padded, LENGTHS, batch_first)
    data, batch_sizes = packed(contextlib.nullcontext(), padded, LENGTHS, batch_first)
    assert torch.equal(data, theirs.data)
    assert torch.equal(batch_sizes, theirs.batch_sizes)
    again, lengths = unpacked(contextlib.nullcontext(), data, batch_sizes, batch_first, -1.0, 9)
    expected, _ = pad_packed_sequence(theirs, batch_first, padding_value=-1.0, total_length=9)
    assert torch.equal(again, expected)
    assert torch.equal(lengths, LENGTHS)


def test_lengths_without_values_are_not_guessed():
    with FakeTensorMode() as mode:
        lengths = mode.from_tensor(LENGTHS)
    lengths.twin = None
    assert packed(mode, torch.zeros(5, 7, 3), lengths, True) is None
