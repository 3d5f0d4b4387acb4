"""Packed sequences: their lengths give the number of elements, and the host knows the lengths even if the values are on a device."""

from typing import Any

import torch
from torch import Tensor

from paceline.parts.plan.trace.fake import TraceMode


def packed(mode: TraceMode, padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor] | None:
    """The result of torch's packing; None if the lengths are not known.

    Shapes:  padded: (batch, longest, ...), or (longest, batch, ...) without `batch_first`; lengths: (batch,), falling
    Holds:   the batch sizes, which have values, add up to the first size of the data, which has none
    """
    known: Any = getattr(lengths, "twin", lengths)
    if not isinstance(known, Tensor) or known.device.type == "meta":
        return None
    batch_sizes = torch.tensor([int((known > step).sum()) for step in range(int(known.max()))])
    steps, samples = _positions(batch_sizes)
    with mode:
        return padded[(samples, steps) if batch_first else (steps, samples)], batch_sizes


def unpacked(
    mode: TraceMode, data: Tensor, batch_sizes: Tensor, batch_first: bool, padding: float, longest: int
) -> tuple[Tensor, Tensor]:
    """The result of torch's padding: every sequence filled up to `longest`, and the lengths, which have values.

    Shapes:  data: (sum of the batch sizes, ...), as `packed` makes it
    """
    steps, samples = _positions(batch_sizes)
    lengths = (batch_sizes[:, None] > torch.arange(int(batch_sizes[0]))).sum(dim=0)
    shape = (len(lengths), longest) if batch_first else (longest, len(lengths))
    with mode:
        padded = torch.full((*shape, *data.shape[1:]), padding, dtype=data.dtype)
        return padded.index_put(((samples, steps) if batch_first else (steps, samples)), data), lengths


def _positions(batch_sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Step and sample of each packed element, in its order: all first steps, then all second ones."""
    steps = torch.repeat_interleave(torch.arange(len(batch_sizes)), batch_sizes)
    return steps, torch.cat([torch.arange(int(size)) for size in batch_sizes])
