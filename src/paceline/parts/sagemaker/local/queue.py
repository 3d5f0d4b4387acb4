"""Decides which job runs: jobs run in the order of their arrival, and at most a given number at the same time."""

import threading

from paceline.facts import SecondaryStatus as Secondary
from paceline.parts.sagemaker.local.job_store import LOST, JobStore
from paceline.parts.sagemaker.local.runner import JobRunner, ServerConfig
from paceline.parts.sagemaker.local.states import Finished, StageFailed, StageReached


class Queue:
    """Starts each job at its turn. A job that is stopped while it waits ends without running."""

    def __init__(self, shelf: JobStore, config: ServerConfig, most: int) -> None:
        self._shelf = shelf
        self._setting = config
        self._free = list(range(most))
        self._waiting: list[str] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def enter(self, name: str) -> None:
        """Add a new job, which may start at once."""
        self._shelf.apply(name, StageReached(to=Secondary.PENDING))
        with self._lock:
            self._waiting.append(name)
            self._start()

    def leave(self, name: str) -> None:
        """End a job that waits. A running job ends itself."""
        with self._lock:
            if name in self._waiting:
                self._waiting.remove(name)
                self._shelf.apply(name, Finished())

    def close(self) -> None:
        """End every job, and wait until the jobs' hosts have ended."""
        self._setting.closing.set()
        with self._lock:
            for name in self._waiting:
                self._shelf.apply(name, StageFailed(reason=LOST))
            self._waiting.clear()
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _start(self) -> None:
        """Start the jobs whose turn it is; the caller holds the lock."""
        while self._free and self._waiting and not self._setting.closing.is_set():
            slot, name = self._free.pop(0), self._waiting.pop(0)
            thread = threading.Thread(target=self._run, args=(slot, name), name=f"job {name}")
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
            thread.start()

    def _run(self, slot: int, name: str) -> None:
        try:
            JobRunner(self._shelf.job(name), slot, self._shelf, self._setting).run()
        finally:
            with self._lock:
                self._free = sorted([*self._free, slot])
                self._start()
