"""Makes a strategy from its name: which ranks exchange what, how messages are encoded, and what is kept from step to step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..planner.strategies import StrategySpec, read
from ..transports.communicator import Communicator
from . import STRATEGIES, on_device
from .bf16 import Bf16
from .codec import PLAIN, Codec, ErrorFeedback
from .direct import fuse_bytes
from .flat_buffer import FlatBuffer
from .int8 import Int8
from .powersgd import PowerSgd


@dataclass(frozen=True)
class GradientStrategy:
    """A strategy and its wrapper, without state. `parse` makes it."""

    named: StrategySpec
    """The parsed name: the strategy, its wrappers and their parameters."""

    @property
    def name(self) -> str:
        """The name, in the form that `parse` accepts."""
        return self.named.name

    @property
    def is_exact(self) -> bool:
        """Whether the average is exact up to the order of additions, at every step."""
        return self.named.is_exact

    @property
    def is_plain_ring(self) -> bool:
        """Whether this is the all-reduce of the group's own backend, without any code of paceline in between."""
        return self.named.strategy == "ring" and self.named.is_exact

    @property
    def every(self) -> int | None:
        """Optimizer steps between two averages of the parameters; None if gradients are averaged."""
        return self.named.parameters["local_sgd"]["every"] if self.named.per_step else None

    def fuse_bytes(self, hosts: int) -> int:
        """Up to this many bytes, the buckets of a step are exchanged as one; 0: each bucket by itself."""
        return fuse_bytes(hosts, self.named.parameters.get("direct", {})) if self.named.strategy == "direct" else 0


def parse(name: str) -> GradientStrategy:
    """The strategy for a name such as "direct+bf16".

    Raises:  ValueError: no such strategy, or parts that cannot be combined (U03)
    """
    return GradientStrategy(read(name))


class StrategyRunner:
    """Runs a strategy: averages flat buffers, and keeps its wrapper's state between steps."""

    def __init__(self, strategy: GradientStrategy) -> None:
        named = strategy.named
        self.strategy = strategy
        self.errors = ErrorFeedback()
        self.powersgd: PowerSgd | None = None
        self.codec: Codec = PLAIN
        self._settings = named.parameters.get(named.strategy, {})
        if "bf16" in named.wrappers:
            self.codec = Bf16()
        elif "int8" in named.wrappers:
            self.codec = Int8(named.parameters["int8"]["block"])
        elif "powersgd" in named.wrappers:
            self.powersgd = PowerSgd(named.parameters["powersgd"]["rank"])

    @property
    def keeps_state(self) -> bool:
        """Whether the state of one step changes the next step."""
        return self.powersgd is not None or self.codec.has_feedback

    @property
    def needs_shapes(self) -> bool:
        """Whether the exchange depends on the boundaries between the tensors of a bucket."""
        return self.powersgd is not None or self.strategy.named.strategy == "parameter_server"

    def average(self, flat_buffer: FlatBuffer, communicator: Communicator) -> None:
        """Average in place, in host memory; blocks. Every rank calls it for the same buffers in the same order on each communicator."""

        def exchange(part: FlatBuffer) -> None:
            STRATEGIES[self.strategy.named.strategy](part, communicator, self.codec, self.errors, self._settings)

        if communicator.size > 1:
            self._by(exchange, flat_buffer)

    def average_on_device(self, flat_buffer: FlatBuffer, group: dist.ProcessGroup) -> int:
        """Average in place, on the device's current stream, over the group (see on_device.py). Returns the bytes that this rank sent."""
        sent = 0

        def exchange(part: FlatBuffer) -> None:
            nonlocal sent
            sent += on_device.average(
                part, group, self.strategy.named.strategy, self.codec, self.errors, self._settings
            )

        self._by(exchange, flat_buffer)
        return sent

    def _by(self, exchange: Callable[[FlatBuffer], None], flat_buffer: FlatBuffer) -> None:
        if self.powersgd is None:
            exchange(flat_buffer)
        elif flat_buffer.flat.dtype == torch.float32:
            self.powersgd.average(flat_buffer, exchange)
        else:
            values = flat_buffer.flat.float()
            self.powersgd.average(FlatBuffer(values, flat_buffer.shapes, flat_buffer.key), exchange)
            flat_buffer.flat.copy_(values)

    def state_dict(self) -> dict[Any, torch.Tensor]:
        """What this rank keeps between two steps, flat: the tensors themselves. Empty without error feedback. Call it between steps.

        A key is made of tuples, strings and numbers, and is the same in a new process that has the same buckets.
        """
        found: dict[Any, torch.Tensor] = {("error", key): error for key, error in self.errors.state_dict().items()}
        for key, (error, q) in (self.powersgd.state_dict() if self.powersgd is not None else {}).items():
            found["powersgd", key] = error
            found["q", key] = q
        return found

    def load_state_dict(self, state: Mapping[Any, torch.Tensor]) -> None:
        """Go on with a state of `state_dict`, the tensors themselves.

        Holds:   a runner that loads the state of another one gives bitwise the averages that the other one would give
        """
        self.errors.load_state_dict({key: tensor for (part, key), tensor in state.items() if part == "error"})
        if self.powersgd is not None:
            matrices = {key: (error, state["q", key]) for (part, key), error in state.items() if part == "powersgd"}
            self.powersgd.load_state_dict(matrices)

    def clear(self) -> None:
        """Drop the state, for other buckets or a new start."""
        self.errors.clear()
        if self.powersgd is not None:
            self.powersgd.clear()

    def extra_bytes(self) -> int:
        """Memory of the state."""
        return self.errors.extra_bytes() + (self.powersgd.extra_bytes() if self.powersgd else 0)
