"""Times and bytes of a step's exchange, summed as its buckets end, in any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter


@dataclass
class StepExchange:
    """The exchange of one backward pass on this rank."""

    seconds: float = 0.0
    """From the hand-over of the first bucket to the end of the last one."""
    sent_bytes: int = 0
    """Bytes that this rank gave to the network, without headers."""
    buckets: list[tuple[int, float]] = field(default_factory=list)
    """(bytes of the buffer, seconds from the start of its exchange to its end), in the order of their ends."""

    @property
    def busy_seconds(self) -> float:
        """Sum over all buckets; more than `seconds` if lanes ran in parallel."""
        return sum(seconds for _, seconds in self.buckets)


class ExchangeStats:
    """Counts the exchanges of one backward pass, and reports the sum when the last one has ended."""

    def __init__(self, publish: Callable[[StepExchange], None]) -> None:
        self._publish = publish
        self._lock = threading.Lock()
        self._start = perf_counter()
        self._open = 0
        self._sealed = False
        self._step = StepExchange()

    def began(self) -> None:
        """An exchange was started."""
        with self._lock:
            self._open += 1

    def ended(self, size_bytes: int, seconds: float, sent_bytes: int) -> None:
        """An exchange has ended, with or without an error."""
        with self._lock:
            self._open -= 1
            self._step.buckets.append((size_bytes, seconds))
            self._step.sent_bytes += sent_bytes
            self._finish_if_over()

    def seal(self) -> None:
        """The last exchange was started."""
        with self._lock:
            self._sealed = True
            self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self._sealed and not self._open:
            self._step.seconds = perf_counter() - self._start
            self._publish(self._step)
