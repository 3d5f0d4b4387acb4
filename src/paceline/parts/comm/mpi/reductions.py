"""The common part of all exchanges over MPI, and the exchanges that reduce. process_group.py has those that only move tensors.

The one thread that calls MPI begins every exchange without blocking; the caller gets its Work. Half-width floats are reduced in
float32 and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    ReduceOptions,
    ReduceScatterOptions,
    Work,
)

from ..arguments import Tensors, as_list, as_lists, filled
from ..backend.observed_work import Watch
from ..backend.work import AsyncWork
from .buffers import (
    Buffers,
    as_numbers,
    averaged,
    check_count,
    check_movable,
    check_reducible,
    check_root,
    check_times,
    joined,
    put,
)
from .thread import Start
from .world import Departures, MpiWorld

Finish = Callable[[], None]


class MpiResult:
    """The end of an exchange: its Work runs the last step and raises its error."""

    def __init__(self, finish: Finish | None, is_between_two: bool = False) -> None:
        self._finish = finish
        self.is_between_two = is_between_two
        self.error: BaseException | None = None

    def __call__(self) -> None:
        """
        Raises:  the error of the exchange
        """
        if self.error is not None:
            raise self.error
        if self._finish is not None:
            self._finish()


# torch's stubs describe the overloads of C++, which one function of Python that takes them all cannot repeat.
_ProcessGroup: Any = dist.ProcessGroup


class MpiReductions(_ProcessGroup):  # type: ignore[misc]
    """The reductions of a group over one MPI communicator. `broken`: why the group cannot be used any more; empty while it can."""

    def __init__(
        self,
        here: MpiWorld,
        comm: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str,
        departures: Departures,
    ) -> None:
        super().__init__(rank, size)
        self._here = here
        self._comm = comm
        self._timeout = timeout
        self._buffers = Buffers(here.mpi)
        self._departures = departures
        self._under_way: list[AsyncWork] = []
        here.groups.add(self)
        self.broken = ""
        self._name, self._description = name, ""
        self._told: Watch | None = None

    def getBackendName(self) -> str:
        """The name that get_backend returns."""
        return "paceline_mpi"

    # torch's own keep the names in a backend below the group, and there is none.

    def getGroupName(self) -> str:
        """The name that torch gave the group."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Called by torch once the group is made."""
        self._name = name

    def getGroupDesc(self) -> str:
        """The purpose of the group, if the caller gave one."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Called by torch once the group is made."""
        self._description = description

    # -- one exchange

    def _exchange(
        self,
        op: str,
        options: Any,
        shown: Tensors,
        left: Tensors,
        start: Start,
        finish: Finish | None = None,
        *,
        after_all: bool = False,
    ) -> AsyncWork:
        """Begin an exchange of all ranks.

        `shown`: its input, for the observer. `left`: its result. `finish`: the last step on the result after the exchange.
        `after_all`: it does not end before the earlier exchanges.
        """
        self.check_usable(op)
        watch = self._watch()
        number = watch.enqueued(op, shown[0] if shown else None, sum(tensor.numel() for tensor in shown))
        outcome = MpiResult(finish)
        work = AsyncWork(lambda: self._words(op), left, outcome, lambda: watch.completed(number))
        self._under_way = [each for each in self._under_way if not each.is_completed()]
        self._begin(work, outcome, options, start, after=self._under_way if after_all else ())
        self._under_way.append(work)
        return work

    def _begin(
        self,
        work: AsyncWork,
        outcome: MpiResult,
        options: Any,
        start: Start,
        statuses: list[Any] | None = None,
        after: Sequence[Work] = (),
    ) -> None:
        failed = self._alone_failed if outcome.is_between_two else self._failed

        def over(error: BaseException | None) -> None:
            outcome.error = error
            with torch.no_grad():
                work.run(failed)

        self._here.thread.submit(start, over, self._seconds(options), statuses, self._departures.words, after)

    def _failed(self, exchange: AsyncWork, error: BaseException) -> BaseException:
        # Requests are matched by their order, so after one that failed nothing in this group can be trusted to meet its like.
        self.broken = f"an earlier exchange failed: {error}"
        return dist.DistBackendError(
            f"{exchange.words()}: {error}. This is how a rank that is gone looks, and ranks that call different exchanges"
        )

    def _alone_failed(self, exchange: AsyncWork, error: BaseException) -> BaseException:
        # Messages are matched by their ranks and tags, so one that failed leaves the others be.
        return dist.DistBackendError(f"{exchange.words()}: {error}")

    def check_usable(self, op: str) -> None:
        """
        Raises:  DistBackendError: an earlier exchange failed, or the group was destroyed
        """
        if self.broken:
            raise dist.DistBackendError(f"{self._words(op)}: {self.broken}")

    def _seconds(self, options: Any) -> float:
        timeout: timedelta | None = getattr(options, "timeout", None)
        return (timeout if timeout and timeout > timedelta(0) else self._timeout).total_seconds()

    def _watch(self) -> Watch:
        # torch names the group after it was made.
        if self._told is None:
            self._told = Watch(self._name)
        return self._told

    def _words(self, op: str) -> str:
        return f"[rank {self.rank()}] {op} of group {self._name} over MPI"

    def shutdown(self) -> None:
        """Accept no more exchanges. The communicator stays until MPI ends: freeing it would have to wait for every rank."""
        self.broken = "the group was destroyed"
        self.leave()

    abort = shutdown

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of every exchange from now on."""
        self._timeout = timeout

    def leave(self) -> None:
        """Tell the other ranks that this rank takes part in no further exchange."""
        self._departures.say()

    # -- reductions

    def allreduce(self, tensors: Any, opts: Any = None, *, op: Any = None, timeout: timedelta | None = None) -> Work:
        """In place."""
        return self._all_reduced(
            "allreduce", as_list(tensors), options_of(AllreduceOptions, opts, op=op, timeout=timeout)
        )

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        """Several tensors, in place."""
        return self._all_reduced("allreduce_coalesced", as_list(tensors), opts or AllreduceCoalescedOptions())

    def _all_reduced(self, op: str, tensors: Tensors, options: Any) -> Work:
        check_movable(op, *tensors)
        reduce_op = options.reduceOp
        check_reducible(op, reduce_op, *tensors)
        tensors = [tensor.detach() for tensor in tensors]
        flat = [as_numbers(tensor, reduce_op) for tensor in tensors]

        def start() -> list[Any]:
            return [
                self._comm.Iallreduce(self._here.mpi.IN_PLACE, piece, self._buffers.operation(reduce_op, numbers.dtype))
                for numbers in flat
                for piece in self._buffers.pieces(numbers)
            ]

        def finish() -> None:
            for tensor, numbers in zip(tensors, flat, strict=True):
                averaged(numbers, reduce_op, self.size())
                put(numbers, tensor)

        return self._exchange(op, options, tensors, tensors, start, finish)

    def reduce(
        self,
        tensors: Any,
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """The root gets the result; on other ranks the tensor stays unchanged."""
        options = options_of(ReduceOptions, opts, root=root, op=op, timeout=timeout)
        check_root("reduce", options.rootRank, self.size())
        (tensor,) = as_list(tensors)
        check_movable("reduce", tensor)
        reduce_op, root = options.reduceOp, options.rootRank
        check_reducible("reduce", reduce_op, tensor)
        tensor = tensor.detach()
        numbers = as_numbers(tensor, reduce_op)

        def start() -> list[Any]:
            kind = self._buffers.operation(reduce_op, numbers.dtype)
            if self.rank() == root:
                return [
                    self._comm.Ireduce(self._here.mpi.IN_PLACE, piece, kind, root)
                    for piece in self._buffers.pieces(numbers)
                ]
            return [self._comm.Ireduce(piece, None, kind, root) for piece in self._buffers.pieces(numbers)]

        def finish() -> None:
            if self.rank() == root:
                averaged(numbers, reduce_op, self.size())
                put(numbers, tensor)

        return self._exchange("reduce", options, [tensor], [tensor], start, finish)

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        """Each rank keeps its own part of the sum; parts may differ in size."""
        (output,), (inputs,) = as_list(output_tensors), as_lists(input_tensors)
        check_count("reduce_scatter", "inputs", inputs, self.size())
        check_movable("reduce_scatter", output, *inputs)
        if output.numel() != inputs[self.rank()].numel():
            raise ValueError(
                f"reduce_scatter: the output has {output.numel()} elements, this rank's input {inputs[self.rank()].numel()}"
            )
        counts = [part.numel() for part in inputs]
        return self._scattered_sums("reduce_scatter", [output], [joined(inputs)], [counts], opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """
        Shapes:  input.numel() == size * output.numel()
        """
        check_movable("reduce_scatter", output, input)
        check_times("reduce_scatter", "input", input, output, self.size())
        return self._scattered_sums("_reduce_scatter_base", [output], [input], [[output.numel()] * self.size()], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputTensors: Tensors, inputTensors: Tensors, opts: Any = None) -> Work:
        """Several of them in one exchange."""
        for output, input in zip(outputTensors, inputTensors, strict=True):
            check_movable("reduce_scatter", output, input)
            check_times("reduce_scatter", "input", input, output, self.size())
        counts = [[output.numel()] * self.size() for output in outputTensors]
        return self._scattered_sums("reduce_scatter_tensor_coalesced", outputTensors, inputTensors, counts, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scattered_sums(self, op: str, outputs: Tensors, inputs: Tensors, counts: list[list[int]], opts: Any) -> Work:
        options = opts or ReduceScatterOptions()
        reduce_op = options.reduceOp
        check_reducible(op, reduce_op, *inputs)
        numbers = [as_numbers(input.detach(), reduce_op) for input in inputs]
        parts = [torch.empty(mine[self.rank()], dtype=whole.dtype) for whole, mine in zip(numbers, counts, strict=True)]
        outputs = [output.detach() for output in outputs]

        def start() -> list[Any]:
            return [
                self._comm.Ireduce_scatter(
                    self._buffers.numbers(whole),
                    self._buffers.numbers(part),
                    each,
                    self._buffers.operation(reduce_op, whole.dtype),
                )
                for whole, part, each in zip(numbers, parts, counts, strict=True)
            ]

        def finish() -> None:
            for part, output in zip(parts, outputs, strict=True):
                averaged(part, reduce_op, self.size())
                put(part, output)

        return self._exchange(op, options, inputs, outputs, start, finish)


def options_of(
    kind: Any, given: Any, *, root: int | None = None, timeout: timedelta | None = None, op: Any = None
) -> Any:
    """The options of a call, given as an object of torch or as arguments; an integer instead of the object is the root."""
    if isinstance(given, int):
        root, given = given, None
    return filled(given or kind(), rootRank=root, timeout=timeout, reduceOp=op)
