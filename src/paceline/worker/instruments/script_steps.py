"""Counts the calls of `paceline.step()`, for loops whose steps no instrument sees.

A call is like a step of one more optimizer: what takes turns with it makes no further step (`RankRecorder.after_step`). The first call
ends a step of 0 s, because nobody knows when that step began.
"""

import builtins

from ...recording.ring import Basis
from ..counted_steps import CountedSteps


class ScriptSteps(CountedSteps):
    """Is what `paceline.step()` calls in this process."""

    basis = Basis.STEPS_BY_SCRIPT

    def begin(self) -> None:
        if "steps" not in self.rank.off:
            builtins.__paceline_step__ = self._step  # type: ignore[attr-defined]

    def _step(self) -> None:
        self.count(self)
