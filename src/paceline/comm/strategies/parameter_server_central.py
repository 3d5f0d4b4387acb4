"""`parameter_server_central`: rank 0 serves all parameters; synchronous. To see what is wrong with it.

Its wire carries every other rank's gradients in and every other rank's average out, so a step takes n - 1 times as long as one rank's
gradients take, and grows with each rank that is added, while the other wires are idle most of the time.

Bytes sent: (n - 1) S by rank 0, S by each other. Latencies: two. Memory: (n - 1) S on rank 0, for the largest exchange of each lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..transports.communicator import Communicator
from .codec import Codec, ErrorFeedback
from .direct import two_hops
from .flat_buffer import FlatBuffer
from .shards import divide_first


def average(
    flat_buffer: FlatBuffer,
    communicator: Communicator,
    codec: Codec,
    errors: ErrorFeedback,
    settings: Mapping[str, int],
) -> None:
    """The average in place.

    Holds:   plain codec: bitwise the sum in the order of ranks times 1 / n, so bitwise the plain all-reduce with two ranks; otherwise
             allclose to it, rtol 1e-6 (float32)
    """
    scale = divide_first(flat_buffer.flat, communicator.size, codec)
    numel, members = flat_buffer.flat.numel(), range(communicator.size)
    bounds = [0] + [numel] * communicator.size
    two_hops(
        flat_buffer.flat,
        communicator,
        members,
        bounds,
        codec=codec,
        errors=errors,
        key=(flat_buffer.key, "central"),
        scale=scale,
    )
