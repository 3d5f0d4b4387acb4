"""The values in the buffers of `paceline bench` when it checks results: they differ by rank and place, so wrong elements can be counted."""

from collections.abc import Callable
from typing import Any

# Values are small whole numbers: every type holds them exactly, and also their sums over dozens of ranks and the products below.
_COPIED, _REDUCED = 63, 3
# With more factors, products would leave the range of half precision.
_FACTOR_RANKS = 8
# Number of elements compared at once: a small number, so that the check needs little memory beside the buffers.
_PIECE = 1 << 20
_SPREAD = 2654435761  # Knuth's multiplicative hash: neighbours differ, and so do places a power of two apart


def values(rank: int, first: int, count: int, repetition: int, most: int, device: Any) -> Any:
    """The numbers of `rank` from element `first` on, each in 0..most (`most` is a power of two minus one). (count,), int64."""
    import torch

    places = torch.arange(first, first + count, dtype=torch.int64, device=device)
    return ((places + rank * 7919 + repetition * 104729) * _SPREAD >> 15) & most


def copied(rank: int, first: int, count: int, repetition: int, device: Any) -> Any:
    """The elements that `rank` sends in a collective that only moves data."""
    return values(rank, first, count, repetition, _COPIED, device)


def reduced(rank: int, first: int, count: int, repetition: int, device: Any, operation: str) -> Any:
    """The elements that `rank` gives to a reduction. For products they are 1 and 2, and only 1 from the ninth rank on."""
    found = values(rank, first, count, repetition, _REDUCED, device)
    if operation != "prod":
        return found
    return (found & 1) + 1 if rank < _FACTOR_RANKS else found * 0 + 1


def reduction(ranks: int, first: int, count: int, repetition: int, device: Any, operation: str) -> Any:
    """The expected result of the reduction over all ranks. (count,), int64; float64 for "avg"."""
    import torch

    parts = (reduced(rank, first, count, repetition, device, operation) for rank in range(ranks))
    found = next(parts)
    for part in parts:
        if operation == "prod":
            found = found * part
        elif operation in ("max", "min"):
            found = torch.maximum(found, part) if operation == "max" else torch.minimum(found, part)
        else:
            found = found + part
    return found.to(torch.float64) / ranks if operation == "avg" else found


def fill(buffer: Any, make: Callable[[int, int], Any]) -> None:
    """Write make(first, count) into a flat buffer, piece by piece."""
    for first in range(0, buffer.numel(), _PIECE):
        piece = buffer[first : first + _PIECE]
        piece.copy_(make(first, piece.numel()))


def wrong(buffer: Any, make: Callable[[int, int], Any]) -> int:
    """Number of elements of a flat buffer that differ from make(first, count) by more than the rounding of the buffer's type.

    Whole numbers beyond the type's range wrap in the buffer and in the expected value. A float may differ by a few units in the last place,
    because the order of a sum decides these.
    """
    import torch

    found = 0
    for first in range(0, buffer.numel(), _PIECE):
        piece = buffer[first : first + _PIECE]
        expected = make(first, piece.numel())
        if not piece.dtype.is_floating_point:
            found += int((piece != expected.to(piece.dtype)).sum())
            continue
        limit = 4 * torch.finfo(piece.dtype).eps
        wanted = expected.to(torch.float64)
        off = (piece.to(torch.float64) - wanted).abs() > limit * wanted.abs()
        # `off` is False for NaN, because a comparison with NaN is never true.
        found += int((off | piece.isnan()).sum())
    return found
