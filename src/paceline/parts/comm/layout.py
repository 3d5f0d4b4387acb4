"""The layout of tensors in memory, and which of them a transport can take as one flat run of elements."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# What gloo adds up; a dtype that it refuses is left to it to refuse. bool is gloo's too: it counts it as bytes.
REDUCIBLE = frozenset(
    (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8, torch.uint8)
)
MOVABLE = REDUCIBLE | {torch.bool, torch.complex64, torch.complex128}


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill one run of memory in some order of its dimensions (contiguous, channels_last, transposed)."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor in memory order, sharing its memory.

    Holds:   flat(x) is x.view(-1) if x is contiguous
    """
    bare = tensor.detach()
    run: torch.Tensor = bare.view(-1) if bare.is_contiguous() else bare.as_strided((bare.numel(),), (1,))
    return run


def plain(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether there is at least one tensor, and each is a strided CPU tensor that fills one run of memory."""
    return bool(tensors) and all(
        tensor.is_cpu and tensor.layout is torch.strided and is_dense(tensor) for tensor in tensors
    )


def as_one(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """One flat tensor over all of them if they are adjacent in one memory, as the chunks of a tensor are; else None."""
    first = tensors[0]
    storage, width = first.untyped_storage().data_ptr(), first.numel() * first.element_size()
    start = first.data_ptr()
    for index, tensor in enumerate(tensors):
        if (
            tensor.data_ptr() != start + index * width
            or not tensor.is_contiguous()
            or tensor.untyped_storage().data_ptr() != storage
        ):
            return None
    whole: torch.Tensor = first.detach().as_strided((first.numel() * len(tensors),), (1,))
    return whole


def alike(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether they are plain CPU tensors of one dtype and one size, each of them contiguous."""
    first = tensors[0]
    return all(
        tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.dtype is first.dtype
        and tensor.numel() == first.numel()
        and tensor.is_contiguous()
        for tensor in tensors
    )
