"""The backend `paceline`: a process group for CPU and CUDA tensors that chooses the transport of each exchange.

    CPU, below the crossover     gloo, and its own Work is returned
    CPU, from the crossover on   shared memory on one host; two levels over hosts with equally many ranks; else gloo
    CUDA (preview)               NCCL if every rank has its own device, else gloo

The choice depends on the operation, the dtype and the number of bytes only, so every rank makes the same choice.
"""

from __future__ import annotations

import atexit
import os
import secrets
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    BarrierOptions,
    BroadcastOptions,
    PrefixStore,
    Store,
    Work,
)

from ..arguments import Tensors, as_list, as_lists, filled, with_root
from ..layout import MOVABLE, alike, as_one, flat, is_dense, plain
from ..no_compile import uncompiled
from ..store_connection import OwnConnection
from ..topology import Topology, find_topology
from ..transports.base import Transport
from ..transports.shared_memory.transport import CROSSOVER_BYTES
from .cuda import open_devices
from .failures import Failures
from .large_exchanges import LargeExchanges
from .observed_work import Watch
from .plain_calls import first_of
from .reduce_ops import of_copies
from .reducing_calls import ReducingCalls

_STRIDED = torch.strided
_GLOO = dist.ProcessGroup.BackendType.GLOO
_EXIT_SECONDS = 2.0
_NEVER = 1 << 62


@uncompiled
class PacelineGroup(ReducingCalls):
    """The process group of this module's description. init_process_group("paceline") and new_group make it, on all its ranks together.

    `host_key`: equal on ranks that share a host. `crossover_bytes`: an exchange of at least this size is large; equal on all ranks.
    `extra_bytes()`: memory beyond the tensors.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        *,
        host_key: str,
        group_name: str = "",
        crossover_bytes: int | None = None,
    ) -> None:
        # torch 2.13 lets only C++ give the store to the base class.
        super().__init__(rank, size)
        self._store = store
        self._process = os.getpid()
        connection = OwnConnection(store, self._agreed_token(store, rank))
        self._failures = Failures(connection)
        self._watch = Watch(group_name)
        self.gloo = dist.ProcessGroupGloo(PrefixStore("gloo/", store), rank, size, timeout)
        self._set_sequence_number_for_group()
        # What C++ calls past this class, and what torch asks of "the backend of a device", is gloo or NCCL.
        self._register_backend(torch.device("cpu"), _GLOO, self.gloo)
        self._set_default_backend(_GLOO)
        self._devices = open_devices(store, rank, size, timeout, self.gloo)
        if self._devices is not None:
            kind = (
                dist.ProcessGroup.BackendType.GLOO if self._devices.nccl is None else dist.ProcessGroup.BackendType.NCCL
            )
            self._register_backend(torch.device("cuda"), kind, self._devices.nccl or self.gloo)
        self.topology: Topology = find_topology(
            PrefixStore("topology/", store), rank, size, host_key, timeout.total_seconds()
        )
        self._large = LargeExchanges(connection, self.topology, self._failures, self._watch, self.gloo)
        crossover = CROSSOVER_BYTES if crossover_bytes is None else crossover_bytes
        self._crossover = crossover if self._large.is_worth_it else _NEVER
        self._plain_group = dist.ProcessGroup(store, rank, size)
        self._plain_group._register_backend(torch.device("cpu"), _GLOO, self.gloo)
        _open_groups.add(self)

    def _agreed_token(self, store: Store, rank: int) -> str:
        """A text that no other group of this store has, even one of the same name."""
        if rank == 0:
            store.set("token", secrets.token_hex(8))
        return store.get("token").decode()

    def getBackendName(self) -> str:
        """The name in torch's messages; the alias smddp has the same."""
        return "paceline"

    def get_group_store(self) -> Store:
        """The store with the group's prefix."""
        return self._store

    def extra_bytes(self) -> int:
        """Bytes that large exchanges hold beyond the tensors; 0 before the first large exchange."""
        return self._large.extra_bytes()

    # Data that is moved and not added up.

    def broadcast(
        self, tensors: Any, opts: Any = None, *, root: int | None = None, timeout: timedelta | None = None
    ) -> Work:
        """Shapes:  [any]; from rank opts.rootRank into the tensor of every other rank."""
        if (
            opts is None
            or root is not None
            or timeout is not None
            or isinstance(opts, int)
            or type(tensors) is not list
        ):
            opts, root = with_root(opts, root)
            tensors, opts = as_list(tensors), filled(opts or BroadcastOptions(), rootRank=root, timeout=timeout)
        if len(tensors) == 1:
            tensor = tensors[0]
            if tensor.is_cpu and tensor.layout is _STRIDED:
                if not tensor.is_contiguous() and not is_dense(tensor):
                    return of_copies(self.broadcast, tensors, opts)
                root = opts.rootRank
                if (
                    tensor.nbytes >= self._crossover
                    and tensor.dtype in MOVABLE
                    and 0 <= root < self.size()
                    and not opts.rootTensor
                ):
                    whole = tensor if tensor.is_contiguous() else flat(tensor)
                    return self._exchange("broadcast", tensor, tensors, lambda by: by.broadcast(whole, root), opts)
        return self._plainly("broadcast", first_of(tensors), tensors, opts)

    def allgather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, *, timeout: timedelta | None = None
    ) -> Work:
        """Shapes:  output [[one tensor a rank]], input [any], all alike"""
        opts = filled(opts or AllgatherOptions(), timeout=timeout)
        outputs, inputs = as_lists(output_tensors), as_list(input_tensors)
        if len(outputs) == len(inputs) == 1 and len(outputs[0]) == self.size() and alike([*inputs, *outputs[0]]):
            input, parts = inputs[0], outputs[0]
            if input.nbytes * self.size() >= self._crossover and input.dtype in MOVABLE:

                def body(by: Transport) -> None:
                    whole = as_one(parts)
                    gathered = input.new_empty(input.numel() * len(parts)) if whole is None else whole
                    by.all_gather(gathered, flat(input))
                    if whole is None:
                        for part, row in zip(parts, gathered.view(len(parts), -1), strict=True):
                            flat(part).copy_(row)

                return self._exchange("allgather", input, parts, body, opts)
        return self._plainly("allgather", first_of(inputs), outputs, inputs, opts)

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None, *, timeout: timedelta | None = None
    ) -> Work:
        """Shapes:  output size * input.numel() elements, contiguous"""
        opts = filled(opts or AllgatherOptions(), timeout=timeout)
        if (
            output.nbytes >= self._crossover
            and plain((output, input))
            and self._fit(output, input)
            and input.dtype in MOVABLE
        ):
            return self._exchange(
                "_allgather_base", input, [output], lambda by: by.all_gather(flat(output), flat(input)), opts
            )
        if plain((output, input)) and self._fit(output, input):
            # Joined or stacked, it is the same memory; gloo takes only one of the two shapes.
            output, input = flat(output), flat(input)
        return self._plainly("_allgather_base", input, output, input, opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Shapes:  each output size * its input"""
        opts = opts or AllgatherOptions()
        if (
            len(outputs) == len(inputs)
            and sum(each.nbytes for each in outputs) >= self._crossover
            and plain((*outputs, *inputs))
            and all(map(self._fit, outputs, inputs))
            and all(each.dtype in MOVABLE for each in inputs)
        ):

            def body(by: Transport) -> None:
                for output, input in zip(outputs, inputs, strict=True):
                    by.all_gather(flat(output), flat(input))

            return self._exchange("allgather_into_tensor_coalesced", inputs[0], outputs, body, opts)
        return self._coalesced("all_gather", first_of(inputs), outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, output_lists: list[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Shapes:  one list of all the inputs for each rank; gloo carries it out at any size"""
        return self._plainly("allgather_coalesced", first_of(inputs), output_lists, inputs, opts or AllgatherOptions())

    def barrier(self, opts: Any = None, *, timeout: timedelta | None = None) -> Work:
        """Returns a Work that ends when every rank has reached it and this rank's earlier exchanges have ended."""
        if isinstance(opts, timedelta):
            timeout, opts = opts, None
        opts = filled(opts or BarrierOptions(), timeout=timeout)
        device = getattr(opts, "device", None)
        on = torch.empty(0, device=device) if device is not None and device.type == "cuda" else _NOTHING
        work = self._plainly("barrier", on, opts)
        return work if self._large.is_idle else self._large.after(work)

    # The group itself.

    @property
    def options(self) -> Any:
        """gloo's own options: `_timeout` is the timeout of every exchange without its own, over every transport."""
        return self.gloo.options

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of exchanges that start from now on."""
        self.gloo._set_default_timeout(timeout)
        if self._devices is not None:
            self._devices.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """destroy_process_group calls it: finish the queued exchanges, then release peers and memory."""
        _open_groups.discard(self)
        self._large.close()
        if self._devices is not None:
            self._devices.close()

    def abort(self) -> None:
        """Release peers and memory at once; running exchanges end with an error, here and on the other ranks."""
        _open_groups.discard(self)
        self._large.abort("the group was aborted on this rank")


_NOTHING = torch.empty(0)
_open_groups: weakref.WeakSet[PacelineGroup] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Close the groups at exit: a thread that returns from C++ while the interpreter shuts down would abort the process."""
    for group in list(_open_groups):
        if group._process == os.getpid():
            group._large.close(_EXIT_SECONDS)
