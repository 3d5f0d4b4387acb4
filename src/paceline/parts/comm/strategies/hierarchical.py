"""`hierarchical`: sums inside each host, uses a ring between hosts, then copies the result inside each host.

If every host has equally many ranks, each rank computes the sum of one part of the buffer over its host's memory. The ranks with the
same position on their hosts form a ring for that part, and the host's memory joins the parts again. Otherwise the first rank of each
host exchanges for the host. On one host it is an all-reduce through shared memory without network traffic; wrappers then have no effect.

Bytes sent per rank of l ranks on each of h hosts: 2 S / l (h - 1) / h. Latencies: 2 (h - 1).
Memory: a part of S / l, two messages of S / l / h, and the host's shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from ..transports.communicator import Communicator
from . import ring
from .codec import Codec, ErrorFeedback
from .flat_buffer import FlatBuffer
from .shards import divide_first

# Sums a buffer over these ranks, times the scale, in place.
Between = Callable[[torch.Tensor, Sequence[int]], None]


def average(
    flat_buffer: FlatBuffer,
    communicator: Communicator,
    codec: Codec,
    errors: ErrorFeedback,
    settings: Mapping[str, int],
) -> None:
    """Compute the average in place.

    Holds:   plain codec: allclose to the plain all-reduce, rtol 1e-6 (float32); bitwise with two ranks
    """
    if communicator.size == 1:
        return
    scale = divide_first(flat_buffer.flat, communicator.size, codec)

    def between(part: torch.Tensor, members: Sequence[int]) -> None:
        ring.around(
            part, communicator, members, codec=codec, errors=errors, key=(flat_buffer.key, "between"), scale=scale
        )

    through_hosts(flat_buffer.flat, communicator, between, scale)


def through_hosts(flat: torch.Tensor, communicator: Communicator, between: Between, scale: float) -> None:
    """Sum inside hosts, call `between` for hosts, and distribute the result: the sum times `scale`, in place."""
    topology, host = communicator.topology, communicator.host
    if len(topology.hosts) == communicator.size:
        between(flat, range(communicator.size))
    elif len(topology.hosts) == 1:
        assert host is not None
        host.all_reduce(flat, "sum" if scale == 1.0 else "avg")
    elif topology.is_regular:
        _by_parts(flat, communicator, between)
    else:
        if host is not None:
            host.all_reduce(flat, "sum")
        if topology.local_rank == 0:
            between(flat, [ranks[0] for ranks in topology.hosts])
        if host is not None:
            host.broadcast(flat, 0)


def _by_parts(flat: torch.Tensor, communicator: Communicator, between: Between) -> None:
    host, local_size = communicator.host, len(communicator.topology.mine)
    assert host is not None
    length = -(-flat.numel() // local_size)
    whole = flat
    if length * local_size != flat.numel():
        whole = flat.new_zeros(length * local_size)
        whole[: flat.numel()].copy_(flat)
    part = flat.new_empty(length)
    host.reduce_scatter(part, whole, "sum")
    between(part, communicator.topology.across)
    host.all_gather(whole, part)
    if whole is not flat:
        flat.copy_(whole[: flat.numel()])
