"""What the buffers of `paceline bench` hold for its check: numbers that tell rank and place apart, and how many came out wrong."""

from collections.abc import Callable
from typing import Any

# Values are small whole numbers: every type holds them, their sums over dozens of ranks and the products below exactly.
_COPIED, _REDUCED = 63, 3
# Products of more factors would leave half's range.
_FACTOR_RANKS = 8
# Elements compared at once, so that the check needs little memory beside the buffers.
_PIECE = 1 << 20
_SPREAD = 2654435761  # Knuth's multiplicative hash: neighbours differ, and so do places a power of two apart


def values(rank: int, first: int, count: int, repetition: int, most: int, device: Any) -> Any:
    """The numbers 0..most (a power of two less one) that `rank` has from element `first` on. (count,), int64."""
    import torch

    places = torch.arange(first, first + count, dtype=torch.int64, device=device)
    return ((places + rank * 7919 + repetition * 104729) * _SPREAD >> 15) & most


def copied(rank: int, first: int, count: int, repetition: int, device: Any) -> Any:
    """What `rank` sends in a collective that only moves data."""
    return values(rank, first, count, repetition, _COPIED, device)


def reduced(rank: int, first: int, count: int, repetition: int, device: Any, operation: str) -> Any:
    """What `rank` gives to a reduction; factors are 1 and 2, and 1 from the ninth rank on."""
    found = values(rank, first, count, repetition, _REDUCED, device)
    if operation != "prod":
        return found
    return (found & 1) + 1 if rank < _FACTOR_RANKS else found * 0 + 1


def reduction(ranks: int, first: int, count: int, repetition: int, device: Any, operation: str) -> Any:
    """What all ranks together must get. (count,), int64, for "avg" float64."""
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
    """Put make(first, count) into a flat buffer, piece by piece."""
    for first in range(0, buffer.numel(), _PIECE):
        piece = buffer[first : first + _PIECE]
        piece.copy_(make(first, piece.numel()))


def wrong(buffer: Any, make: Callable[[int, int], Any]) -> int:
    """Elements of a flat buffer that are not what make(first, count) says, beyond the rounding of the buffer's type.

    Whole numbers beyond the type's range wrap on both sides; a float may be off by a few units in the last place, as the order of
    a sum decides.
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
        # NaN compares as not larger than anything.
        found += int((off | piece.isnan()).sum())
    return found
