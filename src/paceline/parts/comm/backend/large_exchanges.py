"""The large CPU exchanges of one group: their transport, opened at the first exchange, their thread, and their errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, Work

from ..store_connection import OwnConnection, read_all
from ..topology import Topology
from ..transports.base import Transport
from ..transports.gloo import OverGloo, hang_up
from ..transports.hierarchical import TwoLevels
from ..transports.peers import PeerLate, PeerLost
from ..transports.shared_memory.connect import SharedMemoryUnavailable
from ..transports.shared_memory.transport import SharedMemory
from .failures import Failures
from .observed_work import Watch
from .work import AsyncWork
from .worker_thread import Background

# Only the neighbour of a dead rank knows which rank died. The other ranks wait this long for the neighbour's message.
NAMED_WITHIN_SECONDS = 1.5
LOOK_SECONDS = 0.05
_NO_TIME = timedelta(0)
STOP_SECONDS = 10.0

Body = Callable[[Transport], None]


class LargeExchanges:
    """Runs exchanges over the transport that suits the topology, one at a time, in the order of the calls."""

    def __init__(
        self, connection: OwnConnection, topology: Topology, failures: Failures, watch: Watch, gloo: Any
    ) -> None:
        self.topology = topology
        self._connection = connection
        self._watch = watch
        self._gloo = gloo
        self._failures = failures
        self._background = Background(watch.group, self._failed)
        self._transport: Transport | None = None

    @property
    def is_worth_it(self) -> bool:
        """Whether some ranks share a host and all hosts have equally many ranks; else one gloo over all ranks is the best transport."""
        return self.topology.is_regular and len(self.topology.mine) > 1

    @property
    def is_idle(self) -> bool:
        """Whether no exchange is running or queued in the thread."""
        return self._background.is_idle

    def exchange(self, op: str, tensor: torch.Tensor, tensors: list[torch.Tensor], body: Body, opts: Any) -> AsyncWork:
        """Run `body` with the transport in the thread, or at once here if the caller waits anyway.

        `tensor`: the tensor that is reported to the observer; `tensors`: the result; `opts`: torch's options, for asyncOp and timeout.
        """
        number = self._watch.enqueued(op, tensor)
        # Unset, it is -1 ms.
        limit = opts.timeout if opts.timeout > _NO_TIME else self._gloo.options._timeout

        def run() -> None:
            if self._failures.fault is not None:
                raise dist.DistBackendError(self._failures.fault)
            # In place on whatever tensor it is: one that requires grad, or one made in inference mode.
            with torch.inference_mode():
                transport = self._open()
                transport.timeout_seconds = limit.total_seconds()
                body(transport)

        words = partial(self.words, op, number, tensor.numel(), tensor.dtype)
        work = AsyncWork(words, tensors, run, partial(self._watch.completed, number))
        if getattr(opts, "asyncOp", True):
            self._background.submit(work)
        else:
            self._background.run(work)
        return work

    def words(self, op: str, number: int, numel: int, dtype: torch.dtype) -> str:
        """Which exchange, in an error."""
        topology = self.topology
        return (
            f"rank {topology.rank} on {topology.name}: {op} number {number} of group {self._watch.group} "
            f"({numel} x {str(dtype)[6:]}, {topology.size} ranks on {len(topology.hosts)} hosts)"
        )

    def after(self, work: Work) -> AsyncWork:
        """A Work that ends when `work` and all earlier exchanges have ended."""

        def run() -> None:
            work.wait()

        joined = AsyncWork(
            lambda: f"rank {self.topology.rank}: barrier of group {self._watch.group}", [], run, _nothing
        )
        self._background.submit(joined)
        return joined

    def _open(self) -> Transport:
        if self._transport is None:
            store = PrefixStore("large/", self._connection.store)
            self._transport = open_transport(store, self.topology, self._gloo.options._timeout, self._failures.check)
        return self._transport

    def _failed(self, exchange: AsyncWork, error: BaseException) -> BaseException:
        return self.failed(exchange.words, error)

    def failed(self, words: Callable[[], str], error: BaseException) -> BaseException:
        """The exception for an error in the middle of an exchange.

        No later exchange can work, because peers are in the middle of this one. All of them are released and end with an error too.
        """
        if self._failures.fault is None:
            self._let_go()
            self._failures.fault = f"{words()} failed: {self._cause(error)}"
        text = self._failures.fault
        if not isinstance(error, Exception):
            return error
        failure = dist.DistBackendError(text)
        failure.__cause__ = error
        return failure

    def abort(self, why: str) -> None:
        """Release peers and memory at once; running and later exchanges end with `why`."""
        if self._failures.fault is None:
            self._failures.fault = why
            self._let_go()

    def _let_go(self) -> None:
        if self._transport is not None:
            self._transport.close()
        hang_up(self._gloo)

    def _cause(self, error: BaseException) -> str:
        """The cause and the rank at fault; reported to the other ranks unless one of them was first."""
        topology, known = self.topology, f"{type(error).__name__}: {error}"
        if isinstance(error, dist.DistBackendError):
            return str(error)
        if isinstance(error, PeerLost | PeerLate):
            known = str(error).replace(", on this host,", f" on {topology.name}")
        if "Timed out" in known:
            known = f"another rank did not come in time; it is elsewhere in the script, stuck, or its host is cut off ({error})"
        elif isinstance(error, RuntimeError) and not isinstance(error, PeerLate):
            # Who misses a rank of its own host knows enough, unless that one gave up because of a third on another host.
            found = self._blamed(0.0 if isinstance(error, PeerLost) else NAMED_WITHIN_SECONDS)
            if isinstance(found, ReportedError):
                return found
            known = found or known
        self._failures.report(f"rank {topology.rank} on {topology.name} says: {known}")
        return known

    def _blamed(self, seconds: float) -> str | None:
        """The rank that has ended: another rank's report, /proc, or a roll call of the ranks that still run."""
        topology, until = self.topology, time.monotonic() + seconds
        several = len(topology.hosts) > 1
        if several:
            self._failures.answer(topology.rank)
        while True:
            if several and (first := self._failures.first()):
                return ReportedError(first)
            if seconds and (ended := topology.local_peers.ended()):
                return f"{_ranks(ended)} on {topology.name} ended; its own output, or who killed it, says why"
            if time.monotonic() >= until:
                break
            time.sleep(LOOK_SECONDS)
        if several and seconds and (missing := self._failures.unheard(topology.size)):
            return (
                f"a connection ended, and {_ranks(missing)} did not answer since; its own output, or its host, says why"
            )
        return None

    def extra_bytes(self) -> int:
        """Bytes that this rank's transport holds beyond the tensors; 0 before the first large exchange."""
        return self._transport.extra_bytes() if self._transport is not None else 0

    def close(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Finish the queued exchanges, then leave the shared memory and close connections."""
        finished = self._background.stop(timeout_seconds)
        if self._transport is not None:
            self._transport.close()
        if not finished:
            self._background.stop(1.0)


def _nothing() -> None:
    pass


class ReportedError(str):
    """An error with the message that another rank reported to all ranks."""


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def open_transport(store: Store, topology: Topology, timeout: timedelta, check: Callable[[], None]) -> Transport:
    """Open shared memory on one host, two levels over regular hosts, or gloo without shared memory. All ranks call it; it blocks."""
    seconds = timeout.total_seconds()
    host: Transport | None = None
    try:
        host_store = PrefixStore(f"host{topology.host}/", store)
        mine = topology.mine
        host = SharedMemory(host_store, topology.local_rank, len(mine), timeout_seconds=seconds, numbers=mine)
        store.set(f"memory/{topology.rank}", "")
    except SharedMemoryUnavailable as error:
        store.set(f"memory/{topology.rank}", str(error))
    # The word of every rank decides for all: a host of their own could not know of another one that cannot.
    names = [f"memory/{rank}" for rank in range(topology.size)]
    store.wait(names, timeout)
    if any(read_all(store, names)):
        if host is not None:
            host.close()
        return OverGloo(dist.ProcessGroupGloo(PrefixStore("all/", store), topology.rank, topology.size, timeout))
    assert host is not None
    if len(topology.hosts) == 1:
        return host
    across_store = PrefixStore(f"across{topology.local_rank}/", store)
    across = dist.ProcessGroupGloo(across_store, topology.host, len(topology.hosts), timeout)
    return TwoLevels(topology, host, across, check)
