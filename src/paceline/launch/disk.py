"""Reports disk errors in four parts, and writes to a disk that may not answer in one thread, in order."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

from paceline.errors import UsageError


@contextmanager
def refused_by_disk(what: str, next_step: str) -> Iterator[None]:
    """Turn an OSError of the block into an error that says which directory failed and why.

    Raises:  UsageError U22: no room, no permission, or a read-only file system
    """
    try:
        yield
    except OSError as error:
        saw = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        raise UsageError("U22", f"{what} cannot be written", saw=saw, next=next_step) from error


class DiskThread:
    """A thread that writes in the order of the calls. No caller waits for the recording's disk, which may not answer."""

    def __init__(self, most_waiting_bytes: int = 64 << 20) -> None:
        self._thread = ThreadPoolExecutor(1, "paceline-events")
        self._most_bytes = most_waiting_bytes
        self._waiting_bytes = 0
        self._lock = Lock()

    def write(self, act: Callable[..., Any], *arguments: Any) -> None:
        """Queue a write that must not be lost, however long it waits."""
        self._thread.submit(act, *arguments)

    def offer(self, size_bytes: int, act: Callable[..., Any], *arguments: Any) -> bool:
        """Queue a write of data from other hosts. Returns False and drops it if too much of such data waits already."""
        with self._lock:
            if self._waiting_bytes + size_bytes > self._most_bytes:
                return False
            self._waiting_bytes += size_bytes
        self._thread.submit(self._act, size_bytes, act, *arguments)
        return True

    def close(self) -> None:
        """Wait until all data is written."""
        self._thread.shutdown()

    def _act(self, size_bytes: int, act: Callable[..., Any], *arguments: Any) -> None:
        try:
            act(*arguments)
        finally:
            with self._lock:
                self._waiting_bytes -= size_bytes
