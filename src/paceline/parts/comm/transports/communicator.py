"""A separate communicator among the ranks of a process group, independent of the script's exchanges over that group.

Collectives must come in the same order on every rank. Those of a strategy run in background threads while the script's own go on, so
each thread has a communicator: its own gloo backend, and memory shared by the ranks of its host. It takes CPU tensors; a device tensor is
copied by the caller (see ddp/pinned_staging.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..store_connection import OwnConnection
from ..topology import Topology, find_topology
from .base import Transport
from .gloo import KINDS, OverGloo, gloo_words
from .peers import PeerLost
from .preposted_receives import PrepostedReceives

DEFAULT_TIMEOUT = timedelta(minutes=30)


class Communicator:
    """Blocking collectives among the ranks of a group, for one thread. `open_channel` makes it.

    `rank`, `size`: in the group. `names`: the rank in the whole job, for each rank of the group. `host`: None where this rank is alone on
    its host. `sent_bytes`: given to the network so far by this rank; a ring's part is computed from its size, what goes through shared
    memory is not in it.
    """

    def __init__(
        self, gloo: Any, topology: Topology, host: Transport | None, names: Sequence[int], *, label: str = ""
    ) -> None:
        self.label = label
        self.rank, self.size = topology.rank, topology.size
        self.topology = topology
        self.names = tuple(names)
        self.host = host
        self.receives = PrepostedReceives(gloo, self.rank, self.names)
        self._gloo = gloo
        self._ring_bytes = 0

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank gave to the network so far."""
        return self.receives.sent_bytes + self._ring_bytes

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum") -> None:
        """gloo's ring, in place.

        Raises:  PeerLost: a rank is gone, or did not come within the group's timeout
        """
        options = dist.AllreduceOptions()
        options.reduceOp = KINDS[op]
        self._run(self._gloo.allreduce, [tensor], options)
        self._ring_bytes += 2 * tensor.nbytes * (self.size - 1) // self.size

    def all_gather(self, output: torch.Tensor, input: torch.Tensor) -> None:
        """`output` takes every rank's `input`, in the order of ranks."""
        self._run(self._gloo._allgather_base, output, input)
        self._ring_bytes += input.nbytes * (self.size - 1)

    def reduce_scatter(self, output: torch.Tensor, input: torch.Tensor) -> None:
        """`output` takes the sum of every rank's part for me; `input` holds a part for each rank."""
        self._run(self._gloo._reduce_scatter_base, output, input)
        self._ring_bytes += output.nbytes * (self.size - 1)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """From the rank `root` of the group, in place."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        self._run(self._gloo.broadcast, [tensor], options)
        self._ring_bytes += tensor.nbytes if self.rank == root else 0

    def extra_bytes(self) -> int:
        """Memory that this communicator holds on this rank: standing receives and shared memory. gloo's internal memory is not counted."""
        return self.receives.box_bytes() + (self.host.extra_bytes() if self.host else 0)

    def close(self) -> None:
        """Close the connections; ranks that wait for this rank on this communicator see it at once."""
        self.receives.close()
        self._gloo = None
        self.receives = PrepostedReceives(None, self.rank, self.names)
        if self.host is not None:
            self.host.close()
            self.host = None

    def _run(self, start: Callable[..., Any], *arguments: Any) -> None:
        try:
            start(*arguments).wait()
        except RuntimeError as error:
            raise PeerLost(
                None, f"rank {self.names[self.rank]}: a rank of {list(self.names)} did not answer: {gloo_words(error)}"
            ) from error


def open_channel(
    group: dist.ProcessGroup, name: str, *, host_key: str, topology: Topology | None = None, share_memory: bool = True
) -> Communicator:
    """Open a communicator among the ranks of `group`. Each of them calls it, in the same order and once for each name.

    `topology`: if it is known already; otherwise the ranks exchange their `host_key`.
    Raises:  RuntimeError: a rank did not come within the group's timeout
    """
    names = dist.get_process_group_ranks(group)
    rank, size, timeout = group.rank(), group.size(), timeout_of(group)
    store = own_store(group, name)
    try:
        if topology is None:
            topology = find_topology(store, rank, size, host_key, timeout.total_seconds())
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        host = _open_host(store, topology, names, timeout, share_memory)
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {names[rank]}: {name} could not connect the ranks {names} within {timeout.total_seconds():g} s: {error}"
        ) from error
    return Communicator(gloo, topology, host, names, label=name)


def _open_host(
    store: dist.Store, topology: Topology, names: Sequence[int], timeout: timedelta, share_memory: bool
) -> Transport | None:
    mine = topology.mine
    if len(mine) == 1:
        return None
    own = dist.PrefixStore(f"host{topology.host}", store)
    if share_memory:
        # Loaded here: it needs Linux, a communicator does not.
        from .shared_memory.connect import SharedMemoryUnavailable
        from .shared_memory.transport import SharedMemory

        try:
            numbers = [names[rank] for rank in mine]
            return SharedMemory(
                own, topology.local_rank, len(mine), timeout_seconds=timeout.total_seconds(), numbers=numbers
            )
        except SharedMemoryUnavailable:
            # Raised on every rank of the host alike.
            pass
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", own), topology.local_rank, len(mine), timeout)
    return OverGloo(gloo)


# One for each group: torch asks the name server for the other side's name at each connection, which may take seconds.
_connections: weakref.WeakKeyDictionary[dist.ProcessGroup, OwnConnection] = weakref.WeakKeyDictionary()


def own_store(group: dist.ProcessGroup, name: str) -> dist.Store:
    """The store of a group over a separate connection: its keys have no other user, and its waits block no thread of the script."""
    if group not in _connections:
        _connections[group] = OwnConnection(dist.distributed_c10d._world.pg_map[group][1], "channels")
    return dist.PrefixStore(f"paceline/{name}", _connections[group].store)


def timeout_of(group: dist.ProcessGroup) -> timedelta:
    """The timeout of a group's collectives."""
    own = getattr(group, "timeout", None)
    if isinstance(own, timedelta):
        return own
    for device in ("cpu", "cuda"):
        try:
            return group._get_backend(torch.device(device)).options._timeout  # type: ignore[attr-defined, no-any-return]
        except (RuntimeError, AttributeError):
            continue
    return DEFAULT_TIMEOUT
