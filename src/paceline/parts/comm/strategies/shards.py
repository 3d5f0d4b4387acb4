"""The common parts of strategies: how a buffer is cut, and how the division by the number of ranks affects precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from .codec import Codec, ErrorFeedback

# A cache line of float32: vector instructions prefer parts that begin there, and int8's blocks are a multiple of it.
_ALIGN = 16

# A share is split into this many messages if each is large enough to be worth its overhead: while one travels, another is added.
PIECES = 8
_SMALLEST_PIECE_BYTES = 64 * 1024


@dataclass
class Shard:
    """A part of a buffer that is sent as one message."""

    values: torch.Tensor
    """The part of the buffer."""
    error: torch.Tensor | None
    """The error that a codec with error feedback keeps for the part."""
    size_bytes: int
    """Bytes of the message; 0: the part is empty."""


def equal_shares(numel: int, count: int, align: int = _ALIGN) -> list[int]:
    """The start of each of `count` equal parts, and the end. All parts but the last ones are multiples of `align`.

    Holds:   equal_shares(64, 4) == [0, 16, 32, 48, 64]; equal_shares(17, 2) == [0, 16, 17]
    """
    part = -(-numel // (count * align)) * align
    return [min(index * part, numel) for index in range(count + 1)]


def whole_tensors(lengths: Sequence[int], count: int) -> list[int]:
    """The start of each of `count` runs of whole tensors, and the end. The runs are as equal as possible, and some may be empty.

    Holds:   whole_tensors([5, 5, 10], 2) == [0, 10, 20]; whole_tensors([100, 1], 2) == [0, 100, 101]; whole_tensors([9], 2) == [0, 9, 9]
    """
    borders = [0]
    for length in lengths:
        borders.append(borders[-1] + length)
    total = borders[-1]
    cuts = [min(borders, key=lambda border: abs(border - total * index / count)) for index in range(1, count)]
    return [0, *cuts, total]


def divide_first(flat: torch.Tensor, ranks: int, codec: Codec) -> float:
    """Divide the buffer by the number of ranks if its sum could overflow, or is rounded in units of the average.

    Returns the factor that the sum must still be multiplied with. Other buffers are scaled after summing: one rank's share costs less.
    """
    if codec.is_exact and flat.dtype != torch.float16:
        return 1.0 / ranks
    flat.mul_(1.0 / ranks)
    return 1.0


def cut(
    flat: torch.Tensor, bounds: Sequence[int], codec: Codec, errors: ErrorFeedback, key: object
) -> list[list[Shard]]:
    """The pieces of each share flat[bounds[i]:bounds[i + 1]]: one, or PIECES if shares are large. They are the same on every rank."""
    kept = errors.of(key, flat.numel()) if codec.has_feedback else None
    spans = list(pairwise(bounds))
    largest = max((end - start for start, end in spans), default=0) * flat.element_size()
    count = PIECES if largest >= PIECES * _SMALLEST_PIECE_BYTES else 1
    shares = []
    for first, last in spans:
        inner = [first + at for at in equal_shares(last - first, count, codec.align)]
        shares.append(
            [
                Shard(
                    flat[start:end],
                    None if kept is None else kept[start:end],
                    codec.message_bytes(end - start, flat.dtype) if end > start else 0,
                )
                for start, end in pairwise(inner)
            ]
        )
    return shares


def largest_message(shares: Sequence[Sequence[Shard]]) -> int:
    """Bytes of the largest message of some shares."""
    return max(piece.size_bytes for share in shares for piece in share)
