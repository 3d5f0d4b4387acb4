"""One thread of a process group that runs its large exchanges in the order of the calls."""

from __future__ import annotations

import threading
from collections import deque

import torch.distributed as dist

from .work import AsyncWork, Failure


class Background:
    """The thread. It starts at the first exchange for which the caller does not wait at once.

    A caller that waits at once runs the exchange itself if no exchange is running: that saves two thread switches.
    Holds:   exchanges begin in the order of `run` and `submit` from one thread, and never two at a time
    """

    def __init__(self, name: str, failed: Failure) -> None:
        self._name = name
        self._failed = failed
        self._queue: deque[AsyncWork] = deque()
        self._wake = threading.Condition()
        self._turn = threading.Lock()
        self._under_way = 0
        self._stopped = False
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no exchange is queued or running in the thread."""
        return self._under_way == 0

    def run(self, exchange: AsyncWork) -> None:
        """Carry out the exchange before returning."""
        if self._under_way == 0 and self._turn.acquire(blocking=False):
            try:
                exchange.run(self._failed)
            finally:
                self._turn.release()
        else:
            self.submit(exchange)
            exchange.until_over()

    def submit(self, exchange: AsyncWork) -> None:
        """Queue the exchange after the earlier ones."""
        with self._wake:
            if self._stopped:
                raise dist.DistBackendError(f"{exchange.words()}: the group was destroyed")
            self._under_way += 1
            self._queue.append(exchange)
            if self._thread is None:
                # A daemon: a script that never destroys its group ends all the same. backends.py stops it before the interpreter goes.
                self._thread = threading.Thread(target=self._work, name=f"paceline {self._name}", daemon=True)
                self._thread.start()
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._stopped:
                    self._wake.wait()
                if not self._queue:
                    return
                exchange = self._queue.popleft()
            with self._turn:
                exchange.run(self._failed)
            with self._wake:
                self._under_way -= 1
            del exchange

    def stop(self, timeout_seconds: float) -> bool:
        """Accept no more exchanges and finish the queued ones, since peers may wait for them. Returns whether the thread has ended."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()
