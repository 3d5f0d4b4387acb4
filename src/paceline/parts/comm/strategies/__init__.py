"""Strategies that average gradients, one per file: `average(flat_buffer, communicator, codec, errors, settings)` blocks and works in place.

Every docstring states the bound on the result: its distance from the plain averaged all-reduce, and for a lossy strategy the convergence.
tests/parts/comm/strategy_contract.py checks it. With every strategy, all ranks of the group get bitwise the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..transports.communicator import Communicator
from . import direct, hierarchical, parameter_server, ring
from .codec import Codec, ErrorFeedback
from .flat_buffer import FlatBuffer

Average = Callable[[FlatBuffer, Communicator, Codec, ErrorFeedback, Mapping[str, int]], None]

STRATEGIES: dict[str, Average] = {
    "ring": ring.average,
    "hierarchical": hierarchical.average,
    "direct": direct.average,
    "parameter_server": parameter_server.average,
}
