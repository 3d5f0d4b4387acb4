"""CUDA tensors of a group (preview): NCCL if every rank has its own device, gloo if ranks share one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store


class Devices:
    """The backend for CUDA tensors. It is chosen at a rank's first CUDA tensor, from the devices that the ranks then use.

    NCCL refuses two ranks on one device, and says so late; gloo stages through host memory and takes them. `device_of`: a name of the
    tensor's device that no other device of the cluster has. `nccl`: None where torch has none.
    """

    def __init__(
        self, store: Store, rank: int, size: int, gloo: Any, nccl: Any, device_of: Callable[[torch.Tensor], str]
    ) -> None:
        self.nccl = nccl
        self._store = store
        self._rank, self._size = rank, size
        self._gloo = gloo
        self._device_of = device_of
        self._mine = ""
        self._for_all: Any = None
        self._for_peer: dict[int, Any] = {}

    def for_all(self, tensor: torch.Tensor) -> Any:
        """The backend of a collective. The first call waits for every rank's first CUDA tensor."""
        if self._for_all is None:
            used = [self._used_by(rank, tensor) for rank in range(self._size)]
            self._for_all = self._suited(len(set(used)) == self._size)
        return self._for_all

    def for_peer(self, tensor: torch.Tensor, peer: int) -> Any:
        """The backend between this rank and one other. It does not wait for ranks that never exchange CUDA tensors."""
        if peer not in self._for_peer:
            self._for_peer[peer] = self._suited(self._used_by(self._rank, tensor) != self._used_by(peer, tensor))
        return self._for_peer[peer]

    def _suited(self, own_device_each: bool) -> Any:
        return self.nccl if own_device_each and self.nccl is not None else self._gloo

    def _used_by(self, rank: int, tensor: torch.Tensor) -> str:
        if not self._mine:
            self._mine = self._device_of(tensor)
            self._store.set(f"device/{self._rank}", self._mine)
        return self._mine if rank == self._rank else self._store.get(f"device/{rank}").decode()

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of NCCL's exchanges from now on."""
        if self.nccl is not None:
            self.nccl._set_default_timeout(timeout)

    def close(self) -> None:
        """Free NCCL's communicators."""
        if self.nccl is not None:
            self.nccl.shutdown()


def open_devices(store: Store, rank: int, size: int, timeout: timedelta, gloo: Any) -> Devices | None:
    """The devices of a group; None on a machine without CUDA devices."""
    if not torch.cuda.is_available():
        return None
    nccl = None
    if dist.is_nccl_available():
        # Not there in builds of torch without NCCL.
        from torch._C._distributed_c10d import ProcessGroupNCCL

        options = ProcessGroupNCCL.Options()
        options._timeout = timeout
        nccl = ProcessGroupNCCL(PrefixStore("nccl/", store), rank, size, options)
    return Devices(PrefixStore("devices/", store), rank, size, gloo, nccl, _uuid)


def _uuid(tensor: torch.Tensor) -> str:
    return str(torch.cuda.get_device_properties(tensor.device).uuid)
