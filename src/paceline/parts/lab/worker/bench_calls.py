"""The collectives that `paceline bench` times: the buffers of each, torch's call out of place and in place, and the expected result."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import bench_values

# nccl-tests' names of types and reductions, and torch's names for them.
TYPES = {
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "int64": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
}
OPERATIONS = {"sum": "SUM", "prod": "PRODUCT", "max": "MAX", "min": "MIN", "avg": "AVG"}
# The parts of a buffer begin at multiples of this many bytes. Source: nccl-tests src/all_gather.cu, AllGatherGetCollByteCount.
_ALIGNMENT = 16
_SPLIT = frozenset({"all_gather", "reduce_scatter", "all_to_all"})


@dataclass(frozen=True, kw_only=True)
class BenchCase:
    """One line of the table: the collective, the number of ranks, the type, the size. `root` is -1 for a collective without a root."""

    collective: str
    size_bytes: int
    type: str
    operation: str
    root: int
    rank: int
    ranks: int
    device: Any

    @property
    def element_bytes(self) -> int:
        import torch

        return int(getattr(torch, TYPES[self.type]).itemsize)

    @property
    def count(self) -> int:
        """Elements of the call's own argument. If the collective splits its buffer, these are the elements of one rank's part.

        Source:  nccl-tests src/common.cu, setupArgs
        """
        elements = self.size_bytes // self.element_bytes
        if self.collective not in _SPLIT:
            return elements
        block = max(1, _ALIGNMENT // self.element_bytes)
        return elements // self.ranks // block * block

    @property
    def total_count(self) -> int:
        """Elements of the larger of the call's two buffers; its bytes are the row's size."""
        return self.count * (self.ranks if self.collective in _SPLIT else 1)


class BenchCall:
    """Buffers of one case and the call over them.

    `run` makes the call alone, in place or not. `prepare(repetition)` fills the buffers with numbers that differ per repetition, and
    `wrong(repetition)` counts the elements with a wrong result. For the timing, `quiet()` fills the buffers with a number that the
    reduction does not change.
    """

    def __init__(self, case: BenchCase, *, in_place: bool) -> None:
        import torch

        self.case, self.in_place = case, in_place
        kind = getattr(torch, TYPES[case.type])
        larger = torch.empty(case.total_count, dtype=kind, device=case.device)
        self.send, self.receive = larger, larger
        if not in_place:
            self.receive = torch.empty(case.total_count, dtype=kind, device=case.device)
        own = slice(case.rank * case.count, (case.rank + 1) * case.count)
        if case.collective == "all_gather":
            self.send = self.receive[own] if in_place else self.send[: case.count]
        if case.collective == "reduce_scatter":
            self.receive = self.send[own] if in_place else self.receive[: case.count]
        self.run = _CALLS[case.collective](self)

    def quiet(self) -> None:
        """Fill with 1 for product, maximum and average, else with 0. The result equals the input: nothing overflows or becomes denormal."""
        value = 0 if self.case.operation == "sum" else 1
        self.send.fill_(value)
        self.receive.fill_(value)

    def prepare(self, repetition: int) -> None:
        """Fill the buffers for a checked call. Places that the call has yet to receive get a number that no rank sends."""
        self.receive.fill_(99)
        bench_values.fill(self.send, lambda first, count: self._given(first, count, repetition))

    def wrong(self, repetition: int) -> int:
        """How many elements of this rank's result are wrong."""
        return bench_values.wrong(self.receive, lambda first, count: self._wanted(first, count, repetition))

    def _given(self, first: int, count: int, repetition: int) -> Any:
        case = self.case
        if case.collective in ("all_reduce", "reduce_scatter"):
            return bench_values.reduced(case.rank, first, count, repetition, case.device, case.operation)
        return bench_values.copied(case.rank, first, count, repetition, case.device)

    def _wanted(self, first: int, count: int, repetition: int) -> Any:
        import torch

        case = self.case
        if case.collective == "all_reduce":
            return bench_values.reduction(case.ranks, first, count, repetition, case.device, case.operation)
        if case.collective == "reduce_scatter":
            first += case.rank * case.count
            return bench_values.reduction(case.ranks, first, count, repetition, case.device, case.operation)
        if case.collective == "broadcast":
            return bench_values.copied(case.root, first, count, repetition, case.device)
        if case.collective == "sendrecv":
            return bench_values.copied((case.rank - 1) % case.ranks, first, count, repetition, case.device)
        # Part j comes from rank j: all of rank j's part, or, if the call has a buffer of its own, the piece for this rank.
        offset = case.rank * case.count if case.collective == "all_to_all" else 0
        found, place = [], first
        while place < first + count:
            source, inside = divmod(place, case.count)
            length = min(case.count - inside, first + count - place)
            found.append(bench_values.copied(source, offset + inside, length, repetition, case.device))
            place += length
        return torch.cat(found)


def _all_reduce(call: BenchCall) -> Callable[[], object]:
    import torch.distributed as dist

    operation = getattr(dist.ReduceOp, OPERATIONS[call.case.operation])
    if call.in_place:
        return lambda: dist.all_reduce(call.receive, op=operation)

    def copy_and_reduce() -> None:
        # torch has no other way to leave its argument unchanged.
        call.receive.copy_(call.send)
        dist.all_reduce(call.receive, op=operation)

    return copy_and_reduce


def _all_gather(call: BenchCall) -> Callable[[], object]:
    import torch.distributed as dist

    # Until torch 2.12 the function has the second name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return lambda: gather(call.receive, call.send)


def _reduce_scatter(call: BenchCall) -> Callable[[], object]:
    import torch.distributed as dist

    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    operation = getattr(dist.ReduceOp, OPERATIONS[call.case.operation])
    return lambda: scatter(call.receive, call.send, op=operation)


def _broadcast(call: BenchCall) -> Callable[[], object]:
    import torch.distributed as dist

    root = call.case.root
    if call.in_place or call.case.rank != root:
        return lambda: dist.broadcast(call.receive, root)

    def copy_and_send() -> None:
        call.receive.copy_(call.send)
        dist.broadcast(call.receive, root)

    return copy_and_send


def _all_to_all(call: BenchCall) -> Callable[[], object]:
    import torch.distributed as dist

    return lambda: dist.all_to_all_single(call.receive, call.send)


def _sendrecv(call: BenchCall) -> Callable[[], object]:
    """Around the ring: each rank sends to the next rank and receives from the previous rank.

    Source:  nccl-tests src/sendrecv.cu
    """
    case = call.case
    return exchange(call.send, call.receive, (case.rank + 1) % case.ranks, (case.rank - 1) % case.ranks)


def exchange(send: Any, receive: Any, to: int, source: int) -> Callable[[], None]:
    """Send to one rank and receive from another, both at the same time.

    The receive is posted first. If gloo sends first, it transfers one direction after the other (1 MiB each way at 200 Mbit/s: 83 ms
    instead of 44).
    """
    import torch.distributed as dist

    operations = [dist.P2POp(dist.irecv, receive, source), dist.P2POp(dist.isend, send, to)]

    def both() -> None:
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    return both


_CALLS: dict[str, Callable[[BenchCall], Callable[[], object]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "sendrecv": _sendrecv,
}
