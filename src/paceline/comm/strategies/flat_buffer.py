"""What one exchange averages: a bucket of DDP, several of them fused, or the parameters themselves."""

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
    """Shapes of the tensors in it, in order."""
    key: Any = None
    """The same for the same tensors in the same order at every step, on this rank."""

    @property
    def lengths(self) -> list[int]:
        """Elements of each tensor; the whole buffer where the tensors are not known."""
        return [shape.numel() for shape in self.shapes] or [self.flat.numel()]
