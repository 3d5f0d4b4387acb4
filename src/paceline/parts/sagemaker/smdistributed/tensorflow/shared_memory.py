"""Sums and broadcasts among the ranks of one host through paceline's shared memory, on numpy arrays and without torch.

TensorFlow's own collectives go over sockets within a host too, where one of 25 MiB takes several times as long as this
(docs/smdistributed.md). They stay what several hosts and GPUs use.
"""

import functools
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ....comm.transports.shared_memory.arrays import Arrays, Function
from ....comm.transports.shared_memory.connect import SharedMemoryUnavailable
from ....comm.transports.shared_memory.host_ranks import HostRanks, announcement_of
from . import cluster

_FUNCTIONS: dict[str, Function] = {"sum": np.add, "average": np.add, "min": np.minimum, "max": np.maximum}
_CONNECT_SECONDS = 300.0
# TensorFlow takes an array that begins at such an address as it is, and copies any other.
_ALIGNED_BYTES = 64


def _over(memory: memoryview, dtype: Any, offset_bytes: int, count: int) -> Any:
    return np.frombuffer(memory, dtype=dtype, count=count, offset=offset_bytes)


def _part(array: Any, first: int, count: int) -> Any:
    return array[first : first + count]


def _cut(array: Any, length: int) -> Sequence[Any]:
    return [array[first : first + length] for first in range(0, len(array), length)] or [array]


def _divide(array: Any, divisor: int) -> None:
    np.divide(array, array.dtype.type(divisor), out=array)


class SharedArrays(HostRanks):
    """Collectives of numpy arrays; every rank calls the same ones in the same order. See HostRanks for the errors."""

    arrays = Arrays(over=_over, part=_part, cut=_cut, copy=np.copyto, divide=_divide)

    def all_reduce(self, source: Any, op: str) -> Any:
        """A new array: the reduction over all ranks, in the order of ranks, the same on every rank bit for bit.

        Shapes:  source: any, of a number type; "average": of a floating-point type
        """
        flat = np.ascontiguousarray(source).reshape(-1)
        found = _empty(flat)
        announcement = announcement_of("all_reduce", op, flat.size, flat.dtype)
        self._reduce_all(announcement, flat, found, _FUNCTIONS[op], self.size if op == "average" else 1)
        return found.reshape(np.shape(source))

    def broadcast(self, source: Any, root: int) -> Any:
        """A new array: that of rank `root`. The others give one of the same shape and type."""
        flat = np.ascontiguousarray(source).reshape(-1)
        found = _empty(flat)
        np.copyto(found, flat)
        self._broadcast(
            announcement_of("broadcast", f"from rank {root}", flat.size, flat.dtype), found.view(np.uint8), root
        )
        return found.reshape(np.shape(source))


def _empty(like: Any) -> Any:
    octets = np.empty(like.nbytes + _ALIGNED_BYTES, dtype=np.uint8)
    first = -octets.ctypes.data % _ALIGNED_BYTES
    return octets[first : first + like.nbytes].view(like.dtype)


class _KeyValues:
    """What TensorFlow's coordination service keeps for the ranks, with the names of a torch Store."""

    def set(self, key: str, value: str) -> None:
        cluster.context().set_config_key_value(f"paceline/{key}", value)

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        """Nothing: `get` waits."""

    def get(self, key: str) -> str:
        """The value, as soon as a rank has set it."""
        value: str = cluster.context().get_config_key_value(f"paceline/{key}")
        return value


@functools.cache
def connected() -> SharedArrays | None:
    """The shared memory of the ranks, made at the first call.

    None, on all of them: they are on several hosts, one of them has a GPU, or they cannot share memory.
    """
    if cluster.context() is None or cluster.local_size() != cluster.size():
        return None
    store = _KeyValues()
    store.set(f"gpus/{cluster.rank()}", str(len(cluster.context().list_logical_devices("GPU"))))
    if any(store.get(f"gpus/{rank}") != "0" for rank in range(cluster.size())):
        return None
    try:
        memory = SharedArrays(store, cluster.rank(), cluster.size(), timeout_seconds=_CONNECT_SECONDS)
    except SharedMemoryUnavailable:
        return None
    # TensorFlow's own collectives wait for ever too: a rank may save or evaluate for hours.
    memory.timeout_seconds = math.inf
    return memory
