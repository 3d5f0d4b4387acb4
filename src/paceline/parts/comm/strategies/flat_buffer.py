"""The data of one exchange: a bucket of DDP, several fused buckets, or the parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class FlatBuffer:
    """One flat buffer in the memory of the host.

    Shapes:  flat: (numel,), contiguous, a real floating dtype; averaged in place
    """

    flat: torch.Tensor
    """The buffer."""
    shapes: tuple[torch.Size, ...] = field(default_factory=tuple)
    """Shapes of the tensors in the buffer, in order."""
    key: Any = None
    """A key that is the same at every step on this rank for the same tensors in the same order."""

    @property
    def lengths(self) -> list[int]:
        """Elements of each tensor; if the tensors are unknown, the elements of the whole buffer."""
        return [shape.numel() for shape in self.shapes] or [self.flat.numel()]
