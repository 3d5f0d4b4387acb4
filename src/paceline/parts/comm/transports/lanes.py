"""Background exchanges: threads with a communicator each, and the same order on every rank.

torch's own hooks chain collectives in callbacks, which run as the collectives before them end; that is another order on every rank, and
with several buckets in flight a rank waits in one collective for ranks that are in another. Here everything that belongs to one bucket
runs in one thread, and the i-th bucket of a step goes to the same lane on every rank.
"""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from ..observer import observer
from ..topology import Topology, find_topology
from .communicator import Communicator, open_channel, own_store, timeout_of

# Buckets in flight. More than four gain nothing (the sweet spot in Fairring's README), and each lane is a thread with connections.
MOST_LANES = 4
_AT_EXIT_SECONDS = 2.0

Job = Callable[[Communicator], None]
Done = Callable[[BaseException | None], None]


class Lanes:
    """`count` threads with a communicator each, among the ranks of one process group. The first exchange opens them on all ranks.

    Holds:   work submitted to one lane is carried out in the order of `submit`, on every rank
    An error ends the lanes: later work fails at once with the same cause, and the peers see the connections close.
    """

    def __init__(self, group: dist.ProcessGroup, *, host_key: str, count: int, name: str = "gradients") -> None:
        self.group = group
        self.count = count
        self.name = name
        self.failed: BaseException | None = None
        self.topology: Topology | None = None
        # A store may outlive the groups that a script makes and destroys one after the other.
        _opened[name] = _opened.get(name, 0) + 1
        self._place = f"{name}/{_opened[name]}"
        self._host_key = host_key
        self._lanes: list[_Lane] = []
        self._submitted = 0
        self._closed = False

    def open(self) -> None:
        """Connect all lanes on this thread: two lanes that wait for the store at a time would block each other's ranks.

        Raises:  RuntimeError: a rank did not come within the group's timeout
        """
        if self._lanes or self._closed:
            return
        topology = self.find_topology()
        for index in range(self.count):
            communicator = open_channel(
                self.group, f"{self._place}/{index}", host_key=self._host_key, topology=topology
            )
            observer().formed(f"{self.name}/{index}", communicator.names)
            self._lanes.append(_Lane(f"{self.name}/{index}", communicator, self._fail))

    def find_topology(self) -> Topology:
        """The ranks that share a host; found through the store once."""
        if self.topology is None:
            store = own_store(self.group, self._place)
            seconds = timeout_of(self.group).total_seconds()
            self.topology = find_topology(store, self.group.rank(), self.group.size(), self._host_key, seconds)
        return self.topology

    def run(self, job: Job, done: Done, *, lane: int | None = None, dtype: str = "float32", numel: int = 0) -> None:
        """Carry `job` out in a lane, by default in the next one; `done` is told, from that thread, with its error or None.

        Raises:  RuntimeError: an exchange failed before, or the lanes could not be opened or were closed
        """
        if self.failed is not None:
            raise RuntimeError(f"no further exchange: {self.failed}") from self.failed
        if self._closed:
            raise RuntimeError("no further exchange: the process group was destroyed")
        try:
            self.open()
        except RuntimeError as error:
            # Each later bucket would wait for the group's timeout again.
            self._fail(error)
            raise
        chosen = (self._submitted if lane is None else lane) % self.count
        self._submitted += 1
        self._lanes[chosen].put(job, done, dtype, numel)

    def submit(
        self,
        work: Callable[[Communicator], torch.Tensor],
        *,
        lane: int | None = None,
        dtype: str = "float32",
        numel: int = 0,
    ) -> torch.futures.Future[torch.Tensor]:
        """Carry `work` out as `run` does; the future has its result, or its error."""
        promise = Promise()
        results: list[torch.Tensor] = []

        def job(communicator: Communicator) -> None:
            results.append(work(communicator))

        def done(error: BaseException | None) -> None:
            promise.keep(results[0] if results else None, error)

        self.run(job, done, lane=lane, dtype=dtype, numel=numel)
        return promise.future

    def extra_bytes(self) -> int:
        """Memory that the communicators of this rank hold."""
        return sum(lane.communicator.extra_bytes() for lane in self._lanes)

    def close(self, timeout_seconds: float = _AT_EXIT_SECONDS) -> None:
        """Finish what was submitted and end the threads. A second call does nothing."""
        self._closed = True
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.join(timeout_seconds)

    def _fail(self, error: BaseException) -> None:
        self.failed = self.failed or error
        # Each lane closes its communicator when it comes by: peers that wait for this rank in another lane shall not wait for the timeout.
        for lane in self._lanes:
            lane.stop()


class Promise:
    """A future that C++ can wait for, and whose error is an error there too.

    torch gives an exception set from Python to C++ as a value; only what a callback raises becomes an error there.
    """

    def __init__(self, devices: list[int | str | torch.device] | None = None) -> None:
        self._bare: torch.futures.Future[Any] = torch.futures.Future(devices=list(devices) if devices else None)
        self._error: BaseException | None = None
        self.future: torch.futures.Future[torch.Tensor] = self._bare.then(self._value)

    def keep(self, value: Any, error: BaseException | None = None) -> None:
        """Set the value, or the error."""
        self._error = error
        self._bare.set_result(value)

    def _value(self, done: torch.futures.Future[Any]) -> Any:
        if self._error is not None:
            raise self._error
        return done.value()


class _Lane:
    """One thread, its communicator, its queue."""

    def __init__(self, name: str, communicator: Communicator, failed: Callable[[BaseException], None]) -> None:
        self.communicator = communicator
        self._name = name
        self._failed = failed
        self._queue: SimpleQueue[tuple[Job, Done, int] | None] = SimpleQueue()
        self._count = 0
        self._error: BaseException | None = None
        self._over = False
        self._lock = threading.Lock()
        # A daemon: a script that never destroys its group must end all the same. `_close_all` ends it before the interpreter goes.
        self._thread = threading.Thread(target=self._work, name=f"paceline {name}", daemon=True)
        self._thread.start()

    def put(self, job: Job, done: Done, dtype: str, numel: int) -> None:
        with self._lock:
            if not self._over:
                self._count += 1
                observer().enqueued(self._name, self._count, "allreduce", dtype, numel)
                self._queue.put((job, done, self._count))
                return
        done(self._end())

    def stop(self) -> None:
        self._queue.put(None)

    def join(self, timeout_seconds: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            job, done, seq = item
            error = self._carry_out(job)
            observer().completed(self._name, seq)
            done(error)
            # What the bucket holds must not live until the next one.
            del item, job, done
            if error is not None:
                break
        self.communicator.close()
        with self._lock:
            self._over = True
        while not self._queue.empty():
            if (item := self._queue.get()) is not None:
                observer().completed(self._name, item[2])
                item[1](self._end())

    def _carry_out(self, job: Job) -> BaseException | None:
        try:
            job(self.communicator)
            self.communicator.receives.finish()
        except BaseException as error:
            self._error = error
            self._failed(error)
            return error
        return None

    def _end(self) -> BaseException:
        return self._error or RuntimeError(
            f"{self._name} was closed before this exchange: another lane failed, or the group was destroyed"
        )


_lanes_of: dict[dist.ProcessGroup, Lanes] = {}
_opened: dict[str, int] = {}


def lanes_of(group: dist.ProcessGroup, *, host_key: str, count: int) -> Lanes:
    """The lanes of a process group: one set for all models that are averaged over it. The first caller's `count` and `host_key` hold."""
    if group not in _lanes_of:
        if not _lanes_of:
            _close_in_time()
        name = "gradients" if group is dist.group.WORLD else f"gradients/{group.group_name}"
        _lanes_of[group] = Lanes(group, host_key=host_key, count=count, name=name)
    return _lanes_of[group]


def close_lanes(group: dist.ProcessGroup | None = None) -> None:
    """End the threads of a group's lanes, or of all lanes."""
    for key in [group] if group is not None else list(_lanes_of):
        if (lanes := _lanes_of.pop(key, None)) is not None:
            lanes.close()


@functools.cache
def _close_in_time() -> None:
    """Close lanes before the group is destroyed and before the interpreter ends: a thread that runs later aborts the process."""
    atexit.register(close_lanes)
    destroy = dist.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(group: dist.ProcessGroup | None = None) -> None:
        close_lanes(None if group is dist.group.WORLD else group)
        destroy(group)

    dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = destroy_process_group
