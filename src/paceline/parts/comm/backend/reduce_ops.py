"""Translates the reduce ops of torch.distributed: to a transport's name, to gloo's own op, or to a sum with a step before or after."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from ..arguments import Tensors, as_list, factor_of, filled
from ..layout import REDUCIBLE, as_one, flat
from ..transports.base import Transport
from .work import PostprocessedWork

_RedOp = dist.ReduceOp
_NAMES = {
    hash(_RedOp.SUM): "sum",
    hash(_RedOp.AVG): "avg",
    hash(_RedOp.PRODUCT): "product",
    hash(_RedOp.MIN): "min",
    hash(_RedOp.MAX): "max",
    hash(_RedOp.BAND): "band",
    hash(_RedOp.BOR): "bor",
    hash(_RedOp.BXOR): "bxor",
}
_AVG, _PREMUL_SUM = hash(_RedOp.AVG), hash(_RedOp.PREMUL_SUM)
_OF_BITS = frozenset(("band", "bor", "bxor"))
# gloo of torch 2.13 averages; of older releases it is not known, and a sum that is divided afterwards gives the same.
_GLOO_AVERAGES = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)

# Ops, by their hash, that gloo does not have and that a sum stands for.
REWRITTEN = frozenset((_PREMUL_SUM,) if _GLOO_AVERAGES else (_PREMUL_SUM, _AVG))


def reduces(kind: int, tensor: torch.Tensor) -> str | None:
    """The transport's name of the op with that hash, for this dtype; None if gloo carries it out or refuses it.

    Holds:   an op that gloo refuses for a small tensor is refused for a large one too (AVG of integers, BAND of floats)
    """
    name = _NAMES.get(kind)
    if name is None or tensor.dtype not in REDUCIBLE:
        return None
    if tensor.is_floating_point():
        return None if name in _OF_BITS else name
    return None if name == "avg" else name


def reduction(made: Callable[[], Any], opts: Any, op: Any, timeout: timedelta | None) -> Any:
    """Options of that kind: the given ones, or new ones; a ReduceOp instead of options is taken as `op`."""
    if isinstance(opts, _RedOp | _RedOp.RedOpType):
        op, opts = opts, None
    return filled(opts or made(), reduceOp=op, timeout=timeout)


def rewritten(call: Callable[..., Work], kind: int, results: Any, opts: Any, size: int, *inputs: Any) -> Work:
    """The same call as a sum: multiplied before (PREMUL_SUM; in place if there is no separate input) or divided after (AVG)."""
    tensors = as_list(results)
    if not tensors[0].is_floating_point():
        raise RuntimeError(f"{opts.reduceOp.op} needs a floating point dtype, not {tensors[0].dtype}")
    summed = type(opts)()
    for name in ("timeout", "asyncOp", "rootRank", "rootTensor"):
        if hasattr(opts, name):
            setattr(summed, name, getattr(opts, name))
    summed.reduceOp = _RedOp.SUM
    with torch.no_grad():
        if kind == _PREMUL_SUM:
            factor = factor_of(opts.reduceOp)
            if inputs:
                inputs = tuple(_scaled(each, factor) for each in inputs)
            else:
                for tensor in tensors:
                    tensor.mul_(factor)
            return call(results, *inputs, summed)
        work = call(results, *inputs, summed)
        return PostprocessedWork(work, lambda: _divide(tensors, size), tensors)


def _scaled(tensors: Any, factor: Any) -> Any:
    return tensors * factor if isinstance(tensors, torch.Tensor) else [_scaled(each, factor) for each in tensors]


def _divide(tensors: Tensors, count: int) -> None:
    with torch.inference_mode():
        for tensor in tensors:
            tensor.div_(count)


def of_copies(call: Callable[[Tensors, Any], Work], tensors: Tensors, opts: Any) -> Work:
    """The call on contiguous copies, which are copied back. gloo would treat the memory between a view's elements as part of the view."""
    copies = [tensor.detach().contiguous() for tensor in tensors]

    def back() -> None:
        with torch.inference_mode():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)

    return PostprocessedWork(call(copies, opts), back, tensors)


def reduce_each(transport: Transport, flats: Tensors, op: str) -> None:
    """Reduce several tensors: long ones in place, short ones together."""
    short = [each for each in flats if each.nbytes < _SHORT_BYTES]
    for each in flats:
        if each.nbytes >= _SHORT_BYTES:
            transport.all_reduce(each, op)
    if short:
        joined = torch.cat(short)
        transport.all_reduce(joined, op)
        for each, part in zip(short, joined.split([each.numel() for each in short]), strict=True):
            each.copy_(part)


_SHORT_BYTES = 256 << 10


def together(parts: Tensors) -> torch.Tensor:
    """Equal tensors one after the other: their own memory if they are adjacent, else a copy."""
    whole = as_one(parts)
    return torch.cat([flat(part) for part in parts]) if whole is None else whole
