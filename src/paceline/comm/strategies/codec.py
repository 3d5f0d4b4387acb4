"""What travels in place of the numbers of a gradient: the numbers themselves here, bf16 and int8 in strategies/.

A strategy says which part of the buffer goes to whom, a codec how that part is written. A codec with error feedback keeps what rounding
took away, and the next exchange of the same part begins with it.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Codec(Protocol):
    """How a part of a buffer is written into a message.

    `is_exact`: what is read is what was written. `has_feedback`: `write` keeps what it rounds away. `align`: parts of a buffer are whole
    multiples of as many elements.
    """

    name: str
    is_exact: bool
    has_feedback: bool
    align: int

    def message_bytes(self, numel: int, dtype: torch.dtype) -> int:
        """Size of a message of `numel` elements of a buffer of `dtype`."""

    def write(self, values: torch.Tensor, error: torch.Tensor | None) -> torch.Tensor:
        """A contiguous message of these values, which must not change before it has left.

        `error`: same length, float32, what earlier messages of this part left out; it is added before, and set to what this one leaves out.
        """

    def read(self, message: torch.Tensor, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """The values of a message (uint8): of `dtype` where that is exact, else float32. May share memory with the message."""


class IdentityCodec:
    """The numbers as they are. Exact."""

    name = "plain"
    is_exact = True
    has_feedback = False
    align = 16

    def message_bytes(self, numel: int, dtype: torch.dtype) -> int:
        """As in memory."""
        return numel * dtype.itemsize

    def write(self, values: torch.Tensor, error: torch.Tensor | None) -> torch.Tensor:
        """The values themselves, without a copy."""
        return values

    def read(self, message: torch.Tensor, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """A view of the message."""
        return message.view(dtype)[:numel]


PLAIN = IdentityCodec()


class ErrorFeedback:
    """What rounding took away, for every part of every bucket that is written with error feedback.

    `of` is called from the thread that exchanges the bucket; one bucket is exchanged once at a time.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, torch.Tensor] = {}

    def of(self, key: Any, numel: int, device: torch.device | str = "cpu") -> torch.Tensor:
        """What is kept under a key, zeros at first and where the length has changed: float32, (numel,)."""
        kept = self._kept.get(key)
        if kept is None or kept.numel() != numel:
            kept = self._kept[key] = torch.zeros(numel, dtype=torch.float32, device=device)
        return kept

    def clear(self) -> None:
        """Begin anew."""
        self._kept.clear()

    def extra_bytes(self) -> int:
        """Memory of all that is kept."""
        return sum(kept.nbytes for kept in list(self._kept.values()))
