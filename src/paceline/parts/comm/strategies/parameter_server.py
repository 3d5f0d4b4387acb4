"""`parameter_server`: every rank is a worker and also a server for some of the parameters; synchronous.

Workers push the gradients of each server's parameters to that server. The servers add them in the order of ranks and send the average back.
Tensors are not cut, so one large tensor keeps one server busy while the others wait. Also, each rank of a host pushes for itself. `direct`
does both better.

Bytes sent per rank: its own gradients once, without those of its own server, and its server's parameters n - 1 times: 2 S (n - 1) / n if
tensors can be distributed evenly, up to (n - 1) S for the server of a single large tensor. Latencies: two.
Memory: posted receives of (n - 1) times its parameters, for the largest exchange of each lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..transports.communicator import Communicator
from .codec import Codec, ErrorFeedback
from .direct import two_hops
from .flat_buffer import FlatBuffer
from .shards import divide_first, whole_tensors


def average(
    flat_buffer: FlatBuffer,
    communicator: Communicator,
    codec: Codec,
    errors: ErrorFeedback,
    settings: Mapping[str, int],
) -> None:
    """Compute the average in place.

    Holds:   plain codec: bitwise the sum in the order of ranks times 1 / n, so bitwise the plain all-reduce with two ranks; otherwise
             allclose to it, rtol 1e-6 (float32)
    """
    scale = divide_first(flat_buffer.flat, communicator.size, codec)
    bounds = whole_tensors(flat_buffer.lengths, communicator.size)
    members = range(communicator.size)
    two_hops(
        flat_buffer.flat,
        communicator,
        members,
        bounds,
        codec=codec,
        errors=errors,
        key=(flat_buffer.key, "servers"),
        scale=scale,
    )
