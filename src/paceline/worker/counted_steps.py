"""What the instruments of frameworks other than torch share: steps that are counted by calls."""

import os
from time import monotonic_ns
from typing import Any

from ..recording.ring import Basis
from .instrument import RankInstrument

# What is inside of such a framework's graphs or runtime.
_UNSEEN = ("data", "waits", "collectives", "replica")


class CountedSteps(RankInstrument):
    """Reports steps to the rank's recorder. `basis`: how they are counted."""

    basis: Basis

    def count(self, maker: Any, count: int = 1) -> None:
        """So many steps were made since the last call, of equal length. `maker`: what makes them, such as an optimizer."""
        if not self.rank.step_count:
            self.guard(self._first)
        if count == 1:
            self.rank.after_step(maker, None, None)
            return
        share_ns = (monotonic_ns() - self.rank.boundary_ns) // count
        for _ in range(count):
            self.rank.boundary_ns = monotonic_ns() - share_ns
            self.rank.after_step(maker, None, None)

    def _first(self) -> None:
        # What waits for a step wants an optimizer of torch.
        self.rank.call_nobody()
        self.rank.rests_on(self.basis)
        for name in _UNSEEN:
            self.rank.lacks(name)
        if strategy := os.environ.get("PACELINE_GRADIENTS"):
            text = "strategies exchange gradients of torch, and no optimizer of torch has stepped"
            self.rank.notice("gradients", f"--gradients {strategy} has nothing to do: {text} (X13)")

    def guard(self, function: Any) -> None:
        """Call it; if it raises, drop this instrument."""
        if self.name in self.rank.silent:
            return
        try:
            function()
        except Exception as error:
            self.rank.drop(self.name, error)
