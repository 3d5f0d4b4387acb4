"""Whom exchanges are told to. torch's flight recorder sees nothing of a process group in Python, so whoever watches a rank listens here."""

from collections.abc import Sequence
from typing import Protocol


class Observer(Protocol):
    """Told of every exchange of this process, from whichever thread it happens in. Must not raise, and must not wait.

    `group`: name of the process group, or of a strategy's lane. `seq`: counts from 1 in each group, the same exchange has the same
    number on every rank of it. `op`: as the methods of a process group are called ("allreduce"). `dtype`: "float32". `numel`: of this
    rank's input.
    """

    def formed(self, group: str, ranks: Sequence[int], backend: str = "") -> None:
        """Who is in a group that torch.distributed does not know by this name, as a strategy's lane: global ranks, in the group's order.

        Told before the group's first exchange. Without it the group's counters are shown and not compared between ranks.
        """

    def enqueued(self, group: str, seq: int, op: str, dtype: str, numel: int) -> None:
        """The exchange was asked for."""

    def completed(self, group: str, seq: int) -> None:
        """It is over for this rank, well or with an error."""


class Unobserved:
    """Takes every word and keeps none."""

    def formed(self, group: str, ranks: Sequence[int], backend: str = "") -> None:
        """Nobody listens."""

    def enqueued(self, group: str, seq: int, op: str, dtype: str, numel: int) -> None:
        """Nobody listens."""

    def completed(self, group: str, seq: int) -> None:
        """Nobody listens."""


_observer: Observer = Unobserved()


def observe(observer: Observer) -> None:
    """Tell this one from now on; there is one."""
    global _observer
    _observer = observer


def observer() -> Observer:
    """Whom to tell."""
    return _observer
