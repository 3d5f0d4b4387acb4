"""A parameter server in one place: rank 0 serves all parameters; synchronous. What strategies are compared with, and none of them.

Its wire carries every other rank's gradients in and every other rank's average out, so a step takes n - 1 times as long as one rank's
gradients take, and grows with each rank that is added, while the other wires are idle most of the time.

Bytes sent: (n - 1) S by rank 0, S by each other. Latencies: two. Memory: (n - 1) S on rank 0, for the largest exchange of each lane.
"""

from typing import Any

from paceline.parts.comm.ddp.attach import AttachedStrategy
from paceline.parts.comm.ddp.attach import use as use_strategy
from paceline.parts.comm.strategies.codec import PLAIN
from paceline.parts.comm.strategies.direct import two_hops
from paceline.parts.comm.strategies.flat_buffer import FlatBuffer
from paceline.parts.comm.strategies.shards import divide_first
from paceline.parts.comm.strategies.strategy import StrategyRunner, parse
from paceline.parts.comm.transports.communicator import Communicator

NAME = "parameter_server_central"


class CentralServer(StrategyRunner):
    """`parameter_server` with all parameters at rank 0. On the CPU only."""

    def __init__(self) -> None:
        super().__init__(parse("parameter_server"))

    @property
    def needs_shapes(self) -> bool:
        return False

    def average(self, flat_buffer: FlatBuffer, communicator: Communicator) -> None:
        """The average in place.

        Holds:   bitwise the sum in the order of ranks times 1 / n, so bitwise the plain all-reduce with two ranks
        """
        flat, size = flat_buffer.flat, communicator.size
        two_hops(
            flat,
            communicator,
            range(size),
            [0] + [flat.numel()] * size,
            codec=PLAIN,
            errors=self.errors,
            key=(flat_buffer.key, "central"),
            scale=divide_first(flat, size, PLAIN),
        )

    def average_on_device(self, flat_buffer: FlatBuffer, group: Any) -> int:
        """Raises:  NotImplementedError: always"""
        raise NotImplementedError(f"{NAME} exchanges tensors of the CPU only")


def use(ddp: Any, optimizer: Any) -> AttachedStrategy:
    """Have a DistributedDataParallel exchange its gradients through rank 0, in place of `parameter_server`."""
    attached = use_strategy("parameter_server", ddp, optimizer)
    attached.exchange.averaging = CentralServer()
    return attached
