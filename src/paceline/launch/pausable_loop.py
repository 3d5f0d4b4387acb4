"""An event loop whose clock stands still while this process does not run: stopped (Ctrl-Z), frozen with its cgroup, or suspended.

Deadlines in an agent are about others: a host that was silent, a rank that did not end. An agent that did not run itself has not seen
that they did nothing. So that time counts for nobody.
"""

import asyncio
import os
import selectors
import time
from concurrent.futures import ThreadPoolExecutor

# A busy machine wakes a process up late, too. Less than this is counted.
LATE_SECONDS = 1.0
# A wait that was stopped is known by how late it came back, so no wait is long.
_LONGEST_WAIT_SECONDS = 0.5


class _Selector(selectors.DefaultSelector):
    """Adds up by how much it came back later than it was told to."""

    missed_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        wait = min(max(timeout, 0.0), _LONGEST_WAIT_SECONDS)
        began = time.monotonic()
        events = super().select(wait)
        late = time.monotonic() - began - wait
        if late > LATE_SECONDS:
            self.missed_seconds += late
        return events


class OwnTimeLoop(asyncio.SelectorEventLoop):
    """Its `time`, and with it every timeout, timer and sleep, counts only the time in which this process ran or could have run."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)
        # From Python 3.13 on the usual executor asks for the process's CPUs, which a sandbox may refuse: nothing would start.
        self.set_default_executor(ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), "paceline"))

    def time(self) -> float:
        """Monotonic seconds, without those in which this process did not run."""
        return super().time() - self._waits.missed_seconds
