"""gloo as a transport: blocking collectives over one gloo context, and the way to close a context."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, AllreduceOptions, BroadcastOptions

_NO_TAG = 0x7FFF_FFFF
KINDS: dict[str, Any] = {
    "sum": dist.ReduceOp.SUM,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}


def split_average(op: str, count: int) -> tuple[str, Any, int]:
    """Splits an average over `count` into a sum and one division at the end: the op's name, gloo's op, and the divisor."""
    name = "sum" if op == "avg" else op
    return name, KINDS[name], count if op == "avg" else 1


def gloo_words(error: BaseException) -> str:
    """gloo's message, without its source location and without the advice after it."""
    return str(error).split("] ", 1)[-1].split(". This is typically", 1)[0]


def hang_up(group: Any) -> None:
    """Close the connections of a gloo, so that every peer that waits for this rank ends with an error at once.

    gloo has no abort. A receive that times out closes every connection of its context; a receive from a lost peer fails
    without that, so each peer is tried.
    """
    for peer in range(group.size()):
        if peer != group.rank():
            try:
                group.recv([torch.empty(1)], peer, _NO_TAG).wait(timedelta(milliseconds=1))
            except RuntimeError as error:
                if "Timed out" in str(error):
                    return


class OverGloo:
    """The same calls over a separate gloo, for ranks that cannot share memory on their host."""

    def __init__(self, gloo: Any) -> None:
        self._gloo = gloo
        self.timeout_seconds = gloo.options._timeout.total_seconds()

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """In place."""
        _, kind, count = split_average(op, self._gloo.size())
        options = self._limited(AllreduceOptions())
        options.reduceOp = kind
        self._gloo.allreduce([tensor], options).wait()
        if count > 1:
            tensor.div_(count)

    def reduce_scatter(self, output: torch.Tensor, input: torch.Tensor, op: str) -> None:
        """gloo's own is an all_reduce of everything."""
        whole = input.clone()
        self.all_reduce(whole, op)
        output.copy_(whole.view(self._gloo.size(), -1)[self._gloo.rank()].view_as(output))

    def all_gather(self, output: torch.Tensor, input: torch.Tensor) -> None:
        """Shapes:  output (size * input.numel(),)"""
        self._gloo._allgather_base(output, input, self._limited(AllgatherOptions())).wait()

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """From that rank."""
        options = self._limited(BroadcastOptions())
        options.rootRank = root
        options.rootTensor = 0
        self._gloo.broadcast([tensor], options).wait()

    def _limited(self, options: Any) -> Any:
        options.timeout = timedelta(seconds=self.timeout_seconds)
        return options

    def extra_bytes(self) -> int:
        """gloo's own buffers are not counted."""
        return 0

    def close(self) -> None:
        """Close the connections."""
        hang_up(self._gloo)
