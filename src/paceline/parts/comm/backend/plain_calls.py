"""The operations of a process group that gloo or NCCL carries out at any size, and the way of every call to one of the two."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllToAllOptions, GatherOptions, ScatterOptions, Work

from ..arguments import Tensors, as_list, as_lists, filled, with_root
from ..layout import flat, plain
from ..no_compile import uncompiled
from .cuda import Devices
from .failures import Failures
from .large_exchanges import LargeExchanges
from .observed_work import Watch
from .work import PostprocessedWork, StreamWork

_COALESCED = {
    "all_gather": ("all_gather_single_coalesced", "allgather_into_tensor_coalesced", "_allgather_base"),
    "reduce_scatter": ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "_reduce_scatter_base"),
}

# From torch 2.14 on a group counts by itself, and being asked to makes torch write a warning on the user's stderr.
_COUNTS_ON_REQUEST = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14)

# torch's stubs describe the overloads of C++, which one function of Python that takes them all cannot repeat.
_ProcessGroup: Any = dist.ProcessGroup


@uncompiled
class PlainCalls(_ProcessGroup):  # type: ignore[misc]
    """Operations that need no transport of paceline. `gloo` is the inner backend; it gets this rank's calls in their order."""

    gloo: Any
    _plain_group: Any
    _devices: Devices | None
    _watch: Watch
    _failures: Failures
    _large: LargeExchanges

    def _plainly(self, op: str, tensor: torch.Tensor, *arguments: Any, told: str | None = None) -> Work:
        """gloo's or NCCL's own Work for its method `op`; the last argument is its options.

        `tensor` decides between the two, and is reported to the observer. If the caller waits at once, this waits too, so that an error
        can name the rank at fault.
        """
        if self._failures.fault is not None:
            self._refuse(told or op)
        number = self._watch.enqueued(told or op, tensor)
        try:
            backend = self.gloo if tensor.is_cpu else self._backend_of(tensor)
            work: Work = getattr(backend, op)(*arguments) or StreamWork()
            if getattr(arguments[-1], "asyncOp", True):
                return self._watch.follow(work, number)
            work.wait()
        except BaseException as error:
            self._watch.completed(number)
            if "gloo/transport" in str(error) or "Application timeout" in str(error):
                raise self._large.failed(
                    partial(self._large.words, told or op, number, tensor.numel(), tensor.dtype), error
                ) from error
            raise
        self._watch.completed(number)
        return work

    def _one_by_one(self, backend: Any, single: str, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        works = [getattr(backend, single)(*pair, opts) or StreamWork() for pair in zip(outputs, inputs, strict=True)]
        return PostprocessedWork(works[-1], lambda: [work.wait() for work in works[:-1]], outputs)

    def _refuse(self, op: str) -> None:
        raise dist.DistBackendError(
            f"{op}: this group has failed before and cannot be used any more; then: {self._failures.fault}"
        )

    def _backend_of(self, tensor: torch.Tensor, peer: int | None = None) -> Any:
        if tensor.is_cuda and self._devices is not None:
            return self._devices.for_all(tensor) if peer is None else self._devices.for_peer(tensor, peer)
        raise RuntimeError(f"backend paceline moves tensors on cpu and cuda; this one is on {tensor.device}")

    def _coalesced(self, kind: str, tensor: torch.Tensor, *arguments: Any) -> Work:
        """Several all_gather or reduce_scatter as one Work of gloo: only the C++ process group has these, by an old and a new name."""
        if self._failures.fault is not None:
            self._refuse(kind)
        new, old, single = _COALESCED[kind]
        number = self._watch.enqueued(old, tensor)
        try:
            if tensor.is_cpu:
                work = getattr(self._plain_group, new if hasattr(self._plain_group, new) else old)(*arguments)
            else:
                work = self._one_by_one(self._backend_of(tensor), single, *arguments)
        except BaseException:
            self._watch.completed(number)
            raise
        return self._watch.follow(work, number)

    # Rooted collectives and those between all pairs.

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        *,
        root: int | None = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Shapes:  at the root [[size tensors like the input]], elsewhere []"""
        opts, root = with_root(opts, root)
        options = filled(opts or GatherOptions(), rootRank=root, timeout=timeout)
        inputs = as_list(input_tensors)
        return self._plainly("gather", first_of(inputs), as_lists(output_tensors), inputs, options)

    def scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        *,
        root: int | None = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Shapes:  input at the root [[size tensors like the output]], elsewhere []"""
        opts, root = with_root(opts, root)
        options = filled(opts or ScatterOptions(), rootRank=root, timeout=timeout)
        outputs = as_list(output_tensors)
        return self._plainly("scatter", first_of(outputs), outputs, as_lists(input_tensors), options)

    def alltoall(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None, *, timeout: timedelta | None = None
    ) -> Work:
        """The i-th input goes to rank i. The inputs may differ in size, which gloo's own alltoall refuses."""
        options = filled(opts or AllToAllOptions(), timeout=timeout)
        size = self.size()
        if len(output_tensors) != size or len(input_tensors) != size or not plain((*output_tensors, *input_tensors)):
            return self._plainly("alltoall", first_of(input_tensors), output_tensors, input_tensors, options)
        joined = torch.cat([flat(tensor) for tensor in input_tensors])
        arrived = joined.new_empty(sum(tensor.numel() for tensor in output_tensors))
        counts = [[tensor.numel() for tensor in tensors] for tensors in (output_tensors, input_tensors)]

        def spread() -> None:
            with torch.inference_mode():
                for tensor, part in zip(output_tensors, torch.split(arrived, counts[0]), strict=True):
                    flat(tensor).copy_(part)

        work = self._plainly("alltoall_base", joined, arrived, joined, *counts, options, told="alltoall")
        return PostprocessedWork(work, spread, output_tensors)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
        *,
        timeout: timedelta | None = None,
    ) -> Work:
        """Splits along the first dimension; empty lists mean equal splits.

        Raises:  RuntimeError: equal splits of a size that the number of ranks does not divide; gloo would drop the remainder
        """
        options = filled(opts or AllToAllOptions(), timeout=timeout)
        for tensor, splits in ((output, output_split_sizes), (input, input_split_sizes)):
            if not splits and tensor.dim() and tensor.shape[0] % self.size():
                raise RuntimeError(f"all_to_all_single: {tensor.shape[0]} rows do not divide by {self.size()} ranks")
        return self._plainly("alltoall_base", input, output, input, output_split_sizes, input_split_sizes, options)

    alltoall_base = all_to_all_single

    # Between two ranks.

    def send(self, tensors: Tensors, dst_rank: int, tag: int = 0) -> Work:
        """Send to one rank. Messages with the same tag arrive in the order in which they were sent."""
        return self._between("send", tensors, dst_rank, dst_rank, tag)

    def recv(self, tensors: Tensors, src_rank: int, tag: int = 0) -> Work:
        """Receive from one rank."""
        return self._between("recv", tensors, src_rank, src_rank, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Receive from the rank that first sends with this tag; gloo only."""
        return self._between("recv_anysource", tensors, None, tag)

    def _between(self, op: str, tensors: Tensors, peer: int | None, *arguments: int) -> Work:
        if self._failures.fault is not None:
            self._refuse(op)
        tensor = first_of(tensors)
        backend = self.gloo if tensor.is_cpu else self._backend_of(tensor, peer)
        rank = self.rank()
        ends = "any" if peer is None else f"{min(rank, peer)}-{max(rank, peer)}"
        group, number = self._watch.enqueued_between(op, tensor, ends)
        try:
            work = getattr(backend, op)(tensors, *arguments)
        except BaseException:
            self._watch.completed(number, group)
            raise
        return self._watch.follow_between(work, number, group)

    # Order and numbers.

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier on CPU that names the ranks that did not reach it.

        torch.distributed.monitored_barrier itself accepts the backend "gloo" only; call this method on the group.
        """
        if self._failures.fault is not None:
            self._refuse("monitored_barrier")
        number = self._watch.enqueued("monitored_barrier", None)
        try:
            if timeout is None:
                self.gloo.monitored_barrier(wait_all_ranks=wait_all_ranks)
            else:
                self.gloo.monitored_barrier(timeout, wait_all_ranks)
        finally:
            self._watch.completed(number)

    def _set_sequence_number_for_group(self) -> None:
        if _COUNTS_ON_REQUEST:
            self.gloo._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> int:
        return int(self.gloo._get_sequence_number_for_group())


def first_of(tensors: Tensors) -> torch.Tensor:
    """The tensor that decides which backend gets a call. For an empty list the backend itself raises the error."""
    return tensors[0] if tensors and isinstance(tensors[0], torch.Tensor) else torch.empty(0)
