"""Tells the event loop when a child of this process has ended."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress


class ProcessEnd:
    """The end of one child, which is still to be waited for. It is told by a pidfd, or by a thread where the kernel has none to give.

    A kernel before 5.3, the sandbox of some containers, and a Python that was built for old kernels have no pidfd.
    """

    __slots__ = ("_loop", "_on_end", "_pidfd", "refused")

    def __init__(self, pid: int, on_end: Callable[[], object]) -> None:
        self._loop, self._on_end = asyncio.get_running_loop(), on_end
        self._pidfd: int | None = None
        self.refused = ""
        """Why there is no pidfd; "": there is one."""
        try:
            self._pidfd = os.pidfd_open(pid)
        except (OSError, AttributeError) as error:
            self.refused = str(error)
            threading.Thread(target=self._wait, args=(pid,), name="paceline-wait", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, on_end)

    def close(self) -> None:
        """Tell nothing more."""
        self._on_end = _nothing
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _wait(self, pid: int) -> None:
        # Somebody else has waited for it.
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        # The loop is closed when the job has ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        self._on_end()


def _nothing() -> None:
    pass
