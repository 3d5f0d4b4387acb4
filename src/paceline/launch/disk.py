"""What a disk refuses, in four parts; and a disk that may not answer, written to by one thread, in order."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

from paceline.errors import UsageError


@contextmanager
def refused_by_disk(what: str, next_step: str) -> Iterator[None]:
    """Turn a disk's refusal into an error that says which directory and why.

    Raises:  UsageError U22: no room, no permission, a read-only file system
    """
    try:
        yield
    except OSError as error:
        saw = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        raise UsageError("U22", f"{what} cannot be written", saw=saw, next=next_step) from error


class DiskThread:
    """Writes in the order in which it is told and makes nobody wait: the recording's disk may not answer."""

    def __init__(self, most_waiting_bytes: int = 64 << 20) -> None:
        self._thread = ThreadPoolExecutor(1, "paceline-events")
        self._most_bytes = most_waiting_bytes
        self._waiting_bytes = 0
        self._lock = Lock()

    def write(self, act: Callable[..., Any], *arguments: Any) -> None:
        """What must not be lost, however long it waits."""
        self._thread.submit(act, *arguments)

    def offer(self, size_bytes: int, act: Callable[..., Any], *arguments: Any) -> bool:
        """What others sent: False, and nothing is kept of it, where too much of that waits already."""
        with self._lock:
            if self._waiting_bytes + size_bytes > self._most_bytes:
                return False
            self._waiting_bytes += size_bytes
        self._thread.submit(self._act, size_bytes, act, *arguments)
        return True

    def close(self) -> None:
        """Return when everything was written."""
        self._thread.shutdown()

    def _act(self, size_bytes: int, act: Callable[..., Any], *arguments: Any) -> None:
        try:
            act(*arguments)
        finally:
            with self._lock:
                self._waiting_bytes -= size_bytes
