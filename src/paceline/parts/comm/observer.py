"""The observer of exchanges. torch's flight recorder does not see a process group in Python, so a recorder of a rank registers here."""

from collections.abc import Sequence
from typing import Protocol


class Observer(Protocol):
    """It is told of every exchange of this process, from the thread of the exchange. It must not raise and must not wait.

    `group`: name of the process group, or of a strategy's lane. `seq`: counts from 1 in each group, the same exchange has the same
    number on every rank of it. `op`: the name of the process group's method ("allreduce"). `dtype`: "float32". `numel`: of this
    rank's input.
    """

    def formed(self, group: str, ranks: Sequence[int], backend: str = "") -> None:
        """The members of a group whose name torch.distributed does not know, such as a strategy's lane: global ranks, in the group's order.

        It is called before the group's first exchange. Without it the group's counters are shown, but not compared between ranks.
        """

    def enqueued(self, group: str, seq: int, op: str, dtype: str, numel: int) -> None:
        """The exchange was issued."""

    def completed(self, group: str, seq: int) -> None:
        """The exchange has ended for this rank, with or without an error."""


class Unobserved:
    """An observer that ignores every call."""

    def formed(self, group: str, ranks: Sequence[int], backend: str = "") -> None:
        """Nobody listens."""

    def enqueued(self, group: str, seq: int, op: str, dtype: str, numel: int) -> None:
        """Nobody listens."""

    def completed(self, group: str, seq: int) -> None:
        """Nobody listens."""


_observer: Observer = Unobserved()


def observe(observer: Observer) -> None:
    """Report to this observer from now on; there is only one."""
    global _observer
    _observer = observer


def observer() -> Observer:
    """The observer of this process."""
    return _observer
