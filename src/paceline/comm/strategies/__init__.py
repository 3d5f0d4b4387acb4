"""Ways of averaging gradients, one a file: `average(flat_buffer, communicator, codec, errors, settings)`, blocking, in a lane, in place.

Every docstring states what the result is held to: how far it may be from the plain averaged all-reduce, and for lossy ones how training
went. tests/comm/strategy_contract.py checks it. All ranks of the group hold bitwise the same result, whatever the strategy.
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
