"""What carries a large CPU tensor: shared memory (shared_memory/), two levels of hosts (hierarchical.py), or gloo (gloo.py)."""

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


class PeerLost(RuntimeError):
    """A rank is gone in the middle of an exchange. `rank`: which one, as the script knows it; None where nobody can tell."""

    def __init__(self, rank: int | None, text: str) -> None:
        super().__init__(text)
        self.rank = rank


class Transport(Protocol):
    """Collectives over contiguous CPU tensors that block the calling thread; every rank calls the same ones in the same order.

    `timeout_seconds`: how long to wait for another rank; may be set before each call.
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
        """Memory beyond the tensors, of this rank."""

    def close(self) -> None:
        """Let peers that wait for this rank know, and give the memory back."""
