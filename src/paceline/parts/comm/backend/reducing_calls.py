"""The operations of a process group that reduce tensors: by a transport of paceline from the crossover on, else by gloo or NCCL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    ReduceOptions,
    ReduceScatterOptions,
    Work,
)

from ..arguments import Tensors, as_list, as_lists, filled, with_root
from ..layout import alike, flat, is_dense, plain
from ..no_compile import uncompiled
from ..transports.base import Transport
from .large_exchanges import Body
from .plain_calls import PlainCalls, first_of
from .reduce_ops import REWRITTEN, of_copies, reduce_each, reduces, reduction, rewritten, together
from .work import PostprocessedWork

_STRIDED = torch.strided


@uncompiled
class ReducingCalls(PlainCalls):
    """`_crossover`: a transport of paceline carries out exchanges of at least this many bytes."""

    _crossover: int

    def _exchange(self, op: str, told: torch.Tensor, results: Tensors, body: Body, opts: Any) -> Work:
        if self._failures.fault is not None:
            self._refuse(op)
        return self._large.exchange(op, told, results, body, opts)

    def _fit(self, whole: torch.Tensor, part: torch.Tensor) -> bool:
        """Whether a transport can take the tensors; if not, gloo raises the error."""
        return (
            whole.dtype is part.dtype
            and whole.numel() == part.numel() * self.size()
            and whole.is_contiguous()
            and part.is_contiguous()
        )

    def allreduce(self, tensors: Any, opts: Any = None, *, op: Any = None, timeout: timedelta | None = None) -> Work:
        """Shapes:  [any]; in place on every rank. Several tensors of a rank are also reduced together, as gloo does."""
        if opts is None or op is not None or timeout is not None or type(tensors) is not list:
            tensors, opts = as_list(tensors), reduction(AllreduceOptions, opts, op, timeout)
        if len(tensors) == 1:
            tensor = tensors[0]
            if tensor.is_cpu and tensor.layout is _STRIDED:
                kind = hash(opts.reduceOp)
                if tensor.nbytes >= self._crossover and is_dense(tensor) and (name := reduces(kind, tensor)):
                    whole = tensor if tensor.is_contiguous() else flat(tensor)
                    return self._exchange("allreduce", tensor, tensors, lambda by: by.all_reduce(whole, name), opts)
                if kind in REWRITTEN:
                    return rewritten(self.allreduce, kind, tensors, opts, self.size())
                if not tensor.is_contiguous() and not is_dense(tensor):
                    return of_copies(self.allreduce, tensors, opts)
        return self._plainly("allreduce", first_of(tensors), tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Shapes:  tensors of one dtype, each reduced in place."""
        opts = opts or AllreduceCoalescedOptions()
        kind = hash(opts.reduceOp)
        if plain(tensors) and len({tensor.dtype for tensor in tensors}) == 1:
            if sum(tensor.nbytes for tensor in tensors) >= self._crossover and (name := reduces(kind, tensors[0])):
                flats = [flat(tensor) for tensor in tensors]
                return self._exchange(
                    "allreduce_coalesced", tensors[0], tensors, lambda by: reduce_each(by, flats, name), opts
                )
            if kind in REWRITTEN:
                return rewritten(self.allreduce_coalesced, kind, tensors, opts, self.size())
        return self._plainly("allreduce_coalesced", first_of(tensors), tensors, opts)

    def reduce(
        self,
        tensors: Any,
        opts: Any = None,
        op: Any = None,
        *,
        root: int | None = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Shapes:  [any]; the tensors of ranks other than the root are undefined afterwards, as with gloo."""
        opts, root = with_root(opts, root)
        opts = filled(reduction(ReduceOptions, opts, op, timeout), rootRank=root)
        tensors = as_list(tensors)
        if (kind := hash(opts.reduceOp)) in REWRITTEN and plain(tensors):
            return rewritten(self.reduce, kind, tensors, opts, self.size())
        return self._plainly("reduce", first_of(tensors), tensors, opts)

    def reduce_scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        *,
        op: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Shapes:  output [any], input [[one tensor a rank, like the output]]"""
        opts = reduction(ReduceScatterOptions, opts, op, timeout)
        outputs, inputs = as_list(output_tensors), as_lists(input_tensors)
        if len(outputs) == len(inputs) == 1 and len(inputs[0]) == self.size() and plain([*outputs, *inputs[0]]):
            output, parts = outputs[0], inputs[0]
            kind = hash(opts.reduceOp)
            size = output.nbytes * self.size()
            if size >= self._crossover and alike([output, *parts]) and (name := reduces(kind, output)):

                def body(by: Transport) -> None:
                    by.reduce_scatter(flat(output), together(parts), name)

                return self._exchange("reduce_scatter", output, outputs, body, opts)
            if kind in REWRITTEN:
                return rewritten(self.reduce_scatter, kind, outputs, opts, self.size(), inputs)
            if output.numel() == parts[self.rank()].numel() and len({part.dtype for part in (output, *parts)}) == 1:
                start = sum(part.numel() for part in parts[: self.rank()])
                whole = torch.cat([flat(part) for part in parts])
                return self._sum_and_keep("reduce_scatter", output, whole, start, opts)
        return self._plainly("reduce_scatter", first_of(outputs), outputs, inputs, opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None, *, timeout: timedelta | None = None
    ) -> Work:
        """Shapes:  input size * output.numel() elements, contiguous"""
        opts = reduction(ReduceScatterOptions, opts, None, timeout)
        if plain((output, input)) and self._fit(input, output):
            kind = hash(opts.reduceOp)
            if input.nbytes >= self._crossover and (name := reduces(kind, input)):
                return self._exchange(
                    "_reduce_scatter_base",
                    input,
                    [output],
                    lambda by: by.reduce_scatter(flat(output), flat(input), name),
                    opts,
                )
            if kind in REWRITTEN:
                return rewritten(self.reduce_scatter_single, kind, output, opts, self.size(), input)
            start = self.rank() * output.numel()
            return self._sum_and_keep("_reduce_scatter_base", output, flat(input).clone(), start, opts)
        return self._plainly("_reduce_scatter_base", input, output, input, opts)

    def _sum_and_keep(self, op: str, output: torch.Tensor, whole: torch.Tensor, start: int, opts: Any) -> Work:
        """Reduce-scatter by an all-reduce, as in gloo; but this Work has a Future and knows when it has ended, unlike gloo's own."""
        part = whole[start : start + output.numel()]

        def keep() -> None:
            with torch.inference_mode():
                flat(output).copy_(part)

        options = reduction(AllreduceOptions, None, opts.reduceOp, opts.timeout)
        return PostprocessedWork(self._plainly("allreduce", whole, [whole], options, told=op), keep, [output])

    reduce_scatter_base = _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Shapes:  each input size * its output"""
        opts = reduction(ReduceScatterOptions, opts, None, None)
        if len(outputs) == len(inputs) and plain((*outputs, *inputs)) and all(map(self._fit, inputs, outputs)):
            kind = hash(opts.reduceOp)
            if sum(each.nbytes for each in inputs) >= self._crossover and all(reduces(kind, each) for each in inputs):
                name = reduces(kind, inputs[0]) or ""

                def body(by: Transport) -> None:
                    for output, input in zip(outputs, inputs, strict=True):
                        by.reduce_scatter(flat(output), flat(input), name)

                return self._exchange("reduce_scatter_tensor_coalesced", inputs[0], outputs, body, opts)
            if kind in REWRITTEN:
                return rewritten(self.reduce_scatter_single_coalesced, kind, outputs, opts, self.size(), inputs)
        return self._coalesced("reduce_scatter", first_of(inputs), outputs, inputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
