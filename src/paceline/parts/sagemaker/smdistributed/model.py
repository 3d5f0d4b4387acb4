"""Exchanges over a whole model, for scripts that use no DistributedDataParallel."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as torchs


def broadcast_parameters(model: Any, src: int = 0, *, root_rank: int | None = None) -> None:
    """Give every rank the tensors of rank `src`: of a module (parameters and buffers), a state_dict, or pairs of names and tensors.

    `root_rank`: Horovod's name for `src`.
    """
    for tensor in _tensors(model):
        torchs.broadcast(tensor, src if root_rank is None else root_rank)


def average_parameters(model: torch.nn.Module) -> None:
    """Replace each floating-point parameter and buffer by its mean over ranks."""
    for tensor in _tensors(model):
        if tensor.is_floating_point():
            _average(tensor)


def average_gradients(model: torch.nn.Module) -> None:
    """Replace each gradient by its mean over ranks. A rank without the gradient counts as zero. If no rank has it, it stays None."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        return
    anywhere = torch.tensor(
        [float(parameter.grad is not None) for parameter in parameters], device=parameters[0].device
    )
    torchs.all_reduce(anywhere, op=torchs.ReduceOp.MAX)
    for parameter, is_somewhere in zip(parameters, anywhere.tolist(), strict=True):
        if is_somewhere:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            _average(parameter.grad)


def _average(tensor: torch.Tensor) -> None:
    torchs.all_reduce(tensor.detach())
    tensor.detach().div_(torchs.get_world_size())


def _tensors(model: Any) -> Iterator[torch.Tensor]:
    if isinstance(model, torch.nn.Module):
        model = model.state_dict(keep_vars=True)
    entries: Iterable[Any] = model.items() if isinstance(model, Mapping) else model
    for entry in entries:
        tensor = entry[1] if isinstance(entry, tuple) else entry
        if isinstance(tensor, torch.Tensor):
            yield tensor.detach()
