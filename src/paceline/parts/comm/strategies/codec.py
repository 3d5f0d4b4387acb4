"""How the elements of a gradient are encoded in messages: unchanged (here), bf16 and int8 (in their own files).

A strategy decides which part of the buffer goes to which rank. A codec decides how that part is encoded. A codec with error feedback keeps
the rounding error of a part, and adds it to the next message of the same part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch


class Codec(Protocol):
    """How a part of a buffer is encoded in a message.

    `is_exact`: decoding gives the original values. `has_feedback`: `write` keeps the rounding error. `align`: parts of a buffer have a
    multiple of this many elements.
    """

    name: str
    is_exact: bool
    has_feedback: bool
    align: int

    def message_bytes(self, numel: int, dtype: torch.dtype) -> int:
        """Size of a message of `numel` elements of a buffer of `dtype`."""

    def write(self, values: torch.Tensor, error: torch.Tensor | None) -> torch.Tensor:
        """A contiguous message of these values. It must not change before it has been sent.

        `error`: same length, float32: the rounding errors of earlier messages of this part. It is added, and set to the new error.
        """

    def read(self, message: torch.Tensor, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """The values of a message (uint8): in `dtype` if the codec is exact, else float32. They may share memory with the message."""


class IdentityCodec:
    """The elements unchanged. Exact."""

    name = "plain"
    is_exact = True
    has_feedback = False
    align = 16

    def message_bytes(self, numel: int, dtype: torch.dtype) -> int:
        """The size in memory."""
        return numel * dtype.itemsize

    def write(self, values: torch.Tensor, error: torch.Tensor | None) -> torch.Tensor:
        """The values themselves, without a copy."""
        return values

    def read(self, message: torch.Tensor, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """A view of the message."""
        return message.view(dtype)[:numel]


PLAIN = IdentityCodec()


class ErrorFeedback:
    """The rounding errors of every part of every bucket that is sent with error feedback.

    The thread that exchanges the bucket calls `of`. A bucket has only one exchange at a time.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, torch.Tensor] = {}

    def of(self, key: Any, numel: int, device: torch.device | str = "cpu") -> torch.Tensor:
        """The error under a key, float32, (numel,). It is zero at first, and again when the length has changed."""
        kept = self._kept.get(key)
        if kept is None or kept.numel() != numel:
            kept = self._kept[key] = torch.zeros(numel, dtype=torch.float32, device=device)
        return kept

    def state_dict(self) -> dict[Any, torch.Tensor]:
        """The errors by their keys; not copies."""
        return dict(self._kept)

    def load_state_dict(self, errors: Mapping[Any, torch.Tensor]) -> None:
        """Go on with the errors of `state_dict`; not copies."""
        self._kept = dict(errors)

    def clear(self) -> None:
        """Drop all errors."""
        self._kept.clear()

    def extra_bytes(self) -> int:
        """Memory of all errors."""
        return sum(kept.nbytes for kept in list(self._kept.values()))
