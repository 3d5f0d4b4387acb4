"""How often the state is kept: at each step if that costs at most 2 % of a step, else at each n-th."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

from ..recording.state_buffer import StateCell
from .object_graph import CannotKeep

_MOST_FRACTION = 0.02
# Making steps again after a restart takes at most so long, if keeping costs at most this fraction.
_AGAIN_SECONDS = 0.25
_MOST_FRACTION_FOR_LESS_AGAIN = 0.05
# Rank 0 decides after these heads of a process, and all ranks read it one head later.
_DECIDED_AT = (20, 100, 1000)
_DECIDED_EVERY = 5000
_SAMPLES = 64


class Frequency:
    """Decides in rank 0, and tells the other ranks through the store of the process group."""

    def __init__(self, cells: Any, tell: Callable[[str], None]) -> None:
        """`tell`: says a line to the user."""
        self._cells = cells
        self._tell = tell
        self._told = 1
        self._every = 1
        # Optimizer steps between two heads at which a state can be kept.
        self._steps_between = 1
        self._heads = 0
        self._last_ns = 0
        self._kept_last = False
        self._costs: list[int] = []
        self._steps: list[int] = []
        self._cells[StateCell.EVERY] = 1

    def keep_at_most_every(self, steps: int) -> None:
        """A state can be kept after every so many steps, and at no other head."""
        if steps != self._steps_between:
            self._steps_between = steps
            self._cells[StateCell.EVERY] = self._every * steps
            self._tell(f"the state is kept where local_sgd averages the parameters: after every {steps} steps")

    def is_due(self, number: int, now_ns: int) -> bool:
        """Whether the state is kept at this head. `number`: of the head since the job began, among those where it can be kept.

        Raises:  CannotKeep: the ranks do not make their steps together
        """
        self._heads += 1
        if self._last_ns:
            self._steps.append(now_ns - self._last_ns)
        self._last_ns = now_ns
        self._decide()
        return number % self._every == 0

    def kept(self, began_ns: int, ended_ns: int) -> None:
        """The state was kept."""
        self._costs.append(ended_ns - began_ns)
        # The next step begins now.
        self._last_ns = ended_ns
        del self._costs[:-_SAMPLES], self._steps[:-_SAMPLES]

    def _decide(self) -> None:
        if _is_decided_at(self._heads) and _rank() == 0 and self._costs and self._steps:
            self._cells[StateCell.KEEP_NS] = cost = int(statistics.median(self._costs))
            self._cells[StateCell.STEP_MEDIAN_NS] = step = int(statistics.median(self._steps))
            number = every(cost, step)
            self._say(number, cost, step)
            store = _store()
            if store is None:
                self._take(number)
            else:
                store.set(self._key(self._heads), str(number))
        elif _is_decided_at(self._heads - 1) and (store := _store()) is not None:
            key = self._key(self._heads - 1)
            # A rank that is behind would wait for a long time.
            if not store.check([key]):
                raise CannotKeep("the ranks do not make their steps together")
            self._take(int(store.get(key)))

    def _say(self, number: int, cost_ns: int, step_ns: int) -> None:
        """Tell what a kill costs, where that is more than the step under way; again only if it has doubled or halved."""
        if not self._told / 2 < number < self._told * 2:
            self._told = number
            steps = number * self._steps_between
            often = f"after every {steps} steps" if steps > 1 else "after each step again"
            times = f"keeping takes {cost_ns / 1e6:.1f} ms, a step {step_ns / 1e6:.1f} ms"
            self._tell(f"the state is kept {often}: {times}")

    def _take(self, number: int) -> None:
        self._every = number
        self._cells[StateCell.EVERY] = number * self._steps_between

    @staticmethod
    def _key(heads: int) -> str:
        return f"paceline/resume/{os.environ.get('PACELINE_ATTEMPT', '0')}/{heads}"


def every(cost_ns: int, step_ns: int) -> int:
    """At each how many-th step the state is kept.

    Holds:   every(2, 100) == 1; every(10, 100) == 5 for steps of a minute
    """
    if step_ns <= 0 or cost_ns <= _MOST_FRACTION * step_ns:
        return 1
    cheap = math.ceil(cost_ns / (_MOST_FRACTION * step_ns))
    soon = max(1, int(_AGAIN_SECONDS * 1e9 / step_ns))
    return soon if soon < cheap and cost_ns <= _MOST_FRACTION_FOR_LESS_AGAIN * step_ns * soon else cheap


def _is_decided_at(heads: int) -> bool:
    return heads in _DECIDED_AT or (heads > 0 and heads % _DECIDED_EVERY == 0)


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _store() -> Any:
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is None or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return None
    return distributed._get_default_store()
