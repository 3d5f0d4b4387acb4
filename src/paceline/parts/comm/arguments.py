"""The ways in which torch lets a process group be called: lists with an options object, or single tensors with keywords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensors = list[torch.Tensor]


def filled(options: Any, **fields: Any) -> Any:
    """Options with those fields that are not None."""
    for name, value in fields.items():
        if value is not None:
            setattr(options, name, value)
    return options


def as_list(tensors: torch.Tensor | Sequence[torch.Tensor]) -> Tensors:
    """One or several tensors, as the list that a backend takes."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def as_lists(tensors: Sequence[Any]) -> list[Tensors]:
    """A list of tensors or a list of lists, as the list of lists that a backend takes; an empty list stays empty."""
    return [list(tensors)] if tensors and isinstance(tensors[0], torch.Tensor) else [list(inner) for inner in tensors]


def factor_of(op: Any) -> float | torch.Tensor:
    """The factor of a PREMUL_SUM; torch before 2.10 gives it only to pickle."""
    factor: float | torch.Tensor = op.factor if hasattr(op, "factor") else op.__getstate__()[1]
    return factor


def with_root(options: Any, root: int | None) -> tuple[Any, int | None]:
    """The options and the root of a call; the root, a number, may be given instead of the options."""
    return (None, options) if isinstance(options, int) else (options, root)
