"""The interface of transports for large CPU tensors: shared memory (shared_memory/), two levels (hierarchical.py), or gloo (gloo.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

ELEMENTWISE: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
"""What each op of a transport does to two tensors; an average is a sum that the end divides."""


class Transport(Protocol):
    """Collectives over contiguous CPU tensors that block the calling thread; every rank calls the same ones in the same order.

    `timeout_seconds`: limit of a wait for another rank; it may be set before each call.
    """

    timeout_seconds: float

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """In place, over all ranks."""

    def reduce_scatter(self, output: torch.Tensor, input: torch.Tensor, op: str) -> None:
        """Shapes:  input (size * output.numel(),)"""

    def all_gather(self, output: torch.Tensor, input: torch.Tensor) -> None:
        """Shapes:  output (size * input.numel(),)"""

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """From the rank `root` of the group."""

    def extra_bytes(self) -> int:
        """Bytes of this rank beyond the tensors."""

    def close(self) -> None:
        """Tell peers that wait for this rank, and free the memory."""
