"""The backend `paceline_mpi`: a process group for CPU tensors over MPI, by mpi4py.

The ranks of a group must be ranks of one MPI.COMM_WORLD. This module makes groups and moves tensors; reductions.py has
the rest.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import BroadcastOptions, GatherOptions, ScatterOptions, Store, Work

from ..arguments import Tensors, as_list, as_lists
from ..backend.work import AsyncWork
from ..observer import observer
from .buffers import check_count, check_movable, check_root, check_times, joined, put
from .reductions import MpiReductions, MpiResult, options_of
from .world import Departures, MpiWorld, check_started_by_mpi, world


def create(store: Store, rank: int, size: int, timeout: timedelta, name: str) -> MpiGroup:
    """Make a group of these ranks. Every rank of the group calls it, and the ranks wait for each other.

    Raises:  RuntimeError: no mpi4py, or ranks that are not of one MPI.COMM_WORLD
             DistBackendError: a rank did not come in time
    """
    here = world()
    check_started_by_mpi(here, size)
    members, token = _members(store, here, rank, size, timeout)
    comms: list[Any] = []

    def form() -> list[Any]:
        group = here.mpi.COMM_WORLD.Get_group().Incl(members)
        comms.append(here.mpi.COMM_WORLD.Create_group(group, zlib.crc32(repr(members).encode()) & 0x7FFF))
        group.Free()
        return []

    here.thread.finish(form, timeout.total_seconds())
    return MpiGroup(here, comms[0], rank, size, timeout, name, Departures(here, store, rank, token))


def _members(store: Store, here: MpiWorld, rank: int, size: int, timeout: timedelta) -> tuple[list[int], str]:
    """The number of each rank of the group in MPI.COMM_WORLD, which may differ; and a text that only this group has."""
    store.set(f"mpi{rank}", f"{here.rank} {uuid.uuid4().hex}")
    keys = [f"mpi{index}" for index in range(size)]
    try:
        store.wait(keys, timeout)
    except RuntimeError as error:
        absent = [index for index, key in enumerate(keys) if not store.check([key])]
        raise dist.DistBackendError(
            f"[rank {rank}] ranks {absent} did not come to form a group of {size} over MPI within {timeout.total_seconds():g} s"
        ) from error
    told = [store.get(key).decode().split() for key in keys]
    members = [int(number) for number, _ in told]
    if len(set(members)) < size:
        raise RuntimeError(
            f"the {size} ranks of this group are of several MPI.COMM_WORLDs (their numbers there: {members}); "
            "start all of them by one mpirun"
        )
    return members, told[0][1]


_Work = TypeVar("_Work", bound=AsyncWork)


class MpiGroup(MpiReductions):
    """A group over one MPI communicator; `create` makes it."""

    # -- from one to all, from all to one

    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, root: int | None = None
    ) -> Work:
        """In place, from `opts.rootRank`."""
        options = options_of(BroadcastOptions, opts, root=root, timeout=timeout)
        check_root("broadcast", options.rootRank, self.size())
        (tensor,) = as_list(tensors)
        check_movable("broadcast", tensor)
        tensor = tensor.detach()
        flat, root = tensor.contiguous(), options.rootRank

        def start() -> list[Any]:
            return [self._comm.Ibcast(self._buffers.bytes_of(flat), root)]

        return self._exchange("broadcast", options, [tensor], [tensor], start, lambda: put(flat, tensor))

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """The root's outputs get every rank's input."""
        options = options_of(GatherOptions, opts, root=root, timeout=timeout)
        check_root("gather", options.rootRank, self.size())
        (input,), root = as_list(input_tensors), int(options.rootRank)
        outputs = as_lists(output_tensors)[0] if self.rank() == root else []
        if self.rank() == root:
            check_count("gather", "outputs", outputs, self.size())
        check_movable("gather", input, *outputs)
        flat, parts = input.detach().contiguous(), _Parts(outputs)

        def start() -> list[Any]:
            into = self._buffers.parts_of(parts.flat, parts.counts) if self.rank() == root else None
            return [self._comm.Igatherv(self._buffers.bytes_of(flat), into, root)]

        return self._exchange("gather", options, [input], outputs, start, parts.hand_out)

    def scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """Every rank's output gets its part of the root's inputs."""
        options = options_of(ScatterOptions, opts, root=root, timeout=timeout)
        check_root("scatter", options.rootRank, self.size())
        (output,), root = as_list(output_tensors), options.rootRank
        inputs = as_lists(input_tensors)[0] if self.rank() == root else []
        if self.rank() == root:
            check_count("scatter", "inputs", inputs, self.size())
        check_movable("scatter", output, *inputs)
        output = output.detach()
        part, counts = output.contiguous(), [tensor.numel() for tensor in inputs]
        flat = joined(inputs) if inputs else None

        def start() -> list[Any]:
            source = self._buffers.parts_of(flat, counts) if flat is not None else None
            return [self._comm.Iscatterv(source, self._buffers.bytes_of(part), root)]

        return self._exchange("scatter", options, inputs or [output], [output], start, lambda: put(part, output))

    # -- from all to all

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        """Every rank's outputs get every rank's input; inputs may differ in size if the outputs do."""
        (outputs,), (input,) = as_lists(output_tensors), as_list(input_tensors)
        check_count("allgather", "outputs", outputs, self.size())
        check_movable("allgather", input, *outputs)
        if outputs[self.rank()].numel() != input.numel():
            raise ValueError(
                f"allgather: this rank's output has {outputs[self.rank()].numel()} elements, its input {input.numel()}"
            )
        flat, parts = input.detach().contiguous(), _Parts(outputs)

        def start() -> list[Any]:
            return [
                self._comm.Iallgatherv(self._buffers.bytes_of(flat), self._buffers.parts_of(parts.flat, parts.counts))
            ]

        return self._exchange("allgather", opts, [input], outputs, start, parts.hand_out)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """
        Shapes:  output.numel() == size * input.numel()
        """
        return self._gathered("_allgather_base", [output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, output_lists: Tensors, input_list: Tensors, opts: Any = None) -> Work:
        """Several of them in one exchange."""
        return self._gathered("allgather_into_tensor_coalesced", output_lists, input_list, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathered(self, op: str, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        check_movable(op, *outputs, *inputs)
        for output, input in zip(outputs, inputs, strict=True):
            check_times(op, "output", output, input, self.size())
        sources = [tensor.detach().contiguous() for tensor in inputs]
        outputs = [tensor.detach() for tensor in outputs]
        wholes = [tensor.contiguous() for tensor in outputs]

        def start() -> list[Any]:
            return [
                self._comm.Iallgather(self._buffers.bytes_of(source), self._per_rank(whole))
                for source, whole in zip(sources, wholes, strict=True)
            ]

        def finish() -> None:
            for whole, output in zip(wholes, outputs, strict=True):
                put(whole, output)

        return self._exchange(op, opts, inputs, outputs, start, finish)

    def _per_rank(self, whole: torch.Tensor) -> list[Any]:
        """The argument of mpi4py for a gathered tensor: its memory, and the count of one rank's part."""
        memory, count, kind = self._buffers.bytes_of(whole)
        return [memory, count // self.size(), kind]

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> Work:
        """`output_lists[rank][i]` gets that rank's i-th input."""
        check_count("allgather_coalesced", "output lists", output_lists, self.size())
        inputs = as_list(input_list)
        check_movable("allgather_coalesced", *inputs, *(tensor for outputs in output_lists for tensor in outputs))
        flat, parts = joined(inputs), [_Parts(list(outputs)) for outputs in output_lists]
        whole = torch.empty(self.size() * flat.numel(), dtype=flat.dtype)

        def start() -> list[Any]:
            return [self._comm.Iallgather(self._buffers.bytes_of(flat), self._per_rank(whole))]

        def finish() -> None:
            for row, outputs in zip(whole.view(self.size(), -1), parts, strict=True):
                outputs.flat.copy_(row)
                outputs.hand_out()

        return self._exchange("allgather_coalesced", opts, inputs, inputs, start, finish)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
    ) -> Work:
        """Parts of the first dimension: the i-th part of the input goes to rank i. Without sizes the parts are equal."""
        check_movable("alltoall_base", output, input)
        output = output.detach()
        source, whole = input.detach().contiguous(), output.contiguous()
        sent = _split("input", source, input_split_sizes, self.size())
        received = _split("output", whole, output_split_sizes, self.size())

        def start() -> list[Any]:
            return [
                self._comm.Ialltoallv(self._buffers.parts_of(source, sent), self._buffers.parts_of(whole, received))
            ]

        return self._exchange("alltoall_base", opts, [input], [output], start, lambda: put(whole, output))

    alltoall_base = all_to_all_single

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> Work:
        """The i-th input goes to rank i, the i-th output comes from it."""
        check_count("alltoall", "outputs", output_tensors, self.size())
        check_count("alltoall", "inputs", input_tensors, self.size())
        check_movable("alltoall", *output_tensors, *input_tensors)
        flat, counts, parts = (
            joined(input_tensors),
            [tensor.numel() for tensor in input_tensors],
            _Parts(output_tensors),
        )

        def start() -> list[Any]:
            into = self._buffers.parts_of(parts.flat, parts.counts)
            return [self._comm.Ialltoallv(self._buffers.parts_of(flat, counts), into)]

        return self._exchange("alltoall", opts, input_tensors, output_tensors, start, parts.hand_out)

    def barrier(self, opts: Any = None) -> Work:
        """A Work that ends when every rank has reached it and this rank's earlier exchanges have ended."""
        return self._exchange("barrier", opts, [], [], lambda: [self._comm.Ibarrier()], after_all=True)

    # -- from one to one

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Work:
        """A Work that ends once the tensor may be changed again, received or not."""
        (tensor,) = as_list(tensors)
        check_movable("send", tensor)
        flat = tensor.detach().contiguous()
        outcome = MpiResult(None, is_between_two=True)
        work = self._pairwise(AsyncWork, "send", tensor, dst, outcome)
        self._begin(work, outcome, None, lambda: [self._comm.Isend(self._buffers.bytes_of(flat), dst, tag)])
        return work

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Work:
        """Receive from that rank; messages of one rank and tag arrive in their order."""
        return self._receive("recv", tensors, src, src, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """Receive from the rank that sends first; the Work has its number."""
        return self._receive("recv_anysource", tensors, None, self._here.mpi.ANY_SOURCE, tag)

    def _receive(self, op: str, tensors: Any, peer: int | None, source: int, tag: int) -> Work:
        (tensor,) = as_list(tensors)
        check_movable(op, tensor)
        tensor = tensor.detach()
        flat = tensor.contiguous()
        outcome = MpiResult(lambda: put(flat, tensor), is_between_two=True)
        work = self._pairwise(Received, op, tensor, peer, outcome)
        work.status = self._here.mpi.Status()
        request = lambda: [self._comm.Irecv(self._buffers.bytes_of(flat), source, tag)]  # noqa: E731
        self._begin(work, outcome, None, request, [work.status])
        return work

    def _pairwise(
        self, kind: type[_Work], op: str, tensor: torch.Tensor, peer: int | None, outcome: MpiResult
    ) -> _Work:
        self.check_usable(op)
        watch, rank = self._watch(), self.rank()
        ends = "any" if peer is None else f"{min(rank, peer)}-{max(rank, peer)}"
        group, number = watch.enqueued_between(op, tensor, ends)
        return kind(lambda: self._words(op), [tensor], outcome, lambda: observer().completed(group, number))


class Received(AsyncWork):
    """A receive that knows the rank of the sender."""

    status: Any = None

    def _source_rank(self) -> int:
        return int(self.status.Get_source())


class _Parts:
    """Tensors that get the parts of one flat buffer once it is filled."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = [tensor.detach() for tensor in tensors]
        self.counts = [tensor.numel() for tensor in self._tensors]
        self.flat = torch.empty(sum(self.counts), dtype=self._tensors[0].dtype if self._tensors else torch.uint8)

    def hand_out(self) -> None:
        """Copy each part to its tensor."""
        for part, tensor in zip(torch.split(self.flat, self.counts), self._tensors, strict=True):
            put(part, tensor)


def _split(what: str, tensor: torch.Tensor, rows: Sequence[int], size: int) -> list[int]:
    """How many elements go to, or come from, each rank.

    Raises:  ValueError: the sizes do not fill the first dimension, or it cannot be divided evenly
    """
    length = tensor.size(0) if tensor.dim() else 0
    if not rows:
        if length % size:
            raise ValueError(f"alltoall_base: the {what}'s first dimension of {length} does not divide by {size} ranks")
        rows = [length // size] * size
    check_count("alltoall_base", f"{what} split sizes", rows, size)
    if sum(rows) != length:
        raise ValueError(
            f"alltoall_base: the {what} split sizes add up to {sum(rows)}, its first dimension is {length}"
        )
    width = tensor.numel() // length if length else 0
    return [count * width for count in rows]
