"""Ends a rank at once whose loader worker was killed: it goes on from its kept state in a new process, as a killed rank does.

torch raises an exception in such a rank, at any place: at the signal SIGCHLD, in whatever the main thread does. In the middle of keeping
or putting back a state nobody could handle it, and a rank that leaves in the usual way waits seconds for its other workers, while its
peers fail because it is gone.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import wait
from types import FrameType, TracebackType
from typing import Any, NoReturn

from ....worker.error_file import hide_our_frames
from ....worker.frame_line import line_of
from ....worker.no_compile import passed_over_by_warnings

_LOST = re.compile(r"DataLoader worker \(pid")
# The connections of a process that is killed close before the process is gone.
_END_SECONDS = 5.0


def patch(module: Any, session: Any) -> None:
    """Watch the two places in which torch finds that a worker is gone. `module`: torch.utils.data.dataloader."""
    signals, several = module._utils.signal_handling, module._MultiProcessingDataLoaderIter
    at_signal, try_get_data = signals._error_if_any_worker_fails, several._try_get_data

    @functools.wraps(at_signal)
    def _error_if_any_worker_fails() -> None:
        try:
            at_signal()
        except RuntimeError as error:
            # A worker that is killed after the script's end costs nothing.
            if session.is_of_rank() and threading.main_thread().is_alive():
                _leave(error, sys._getframe(1))
            raise

    @functools.wraps(try_get_data)
    def _try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return try_get_data(self, *args, **kwargs)
        except (RuntimeError, OSError, EOFError) as error:
            if session.is_of_rank() and (lost := _lost(self, error)) is not None:
                _leave(lost, sys._getframe(1))
            raise

    signals._error_if_any_worker_fails = passed_over_by_warnings(_error_if_any_worker_fails)
    several._try_get_data = passed_over_by_warnings(_try_get_data)


def _lost(iterator: Any, error: Exception) -> Exception | None:
    """The exception that says which worker is gone; None: `error` has another reason."""
    if isinstance(error, RuntimeError):
        return error if _LOST.match(str(error)) else None
    # A worker hands tensors over on a connection of its own.
    if all(worker.is_alive() for worker in iterator._workers):
        _wait_for_an_end(iterator._workers)
    killed = [str(worker.pid) for worker in iterator._workers if not worker.is_alive() and worker.exitcode]
    if not killed:
        return None
    lost = RuntimeError(f"DataLoader worker (pid(s) {', '.join(killed)}) exited unexpectedly")
    lost.__cause__ = error
    return lost


def _wait_for_an_end(workers: Any) -> None:
    """Return when one of `workers`, all of them alive, can be asked how it ended, or after 5 s."""
    until = time.monotonic() + _END_SECONDS
    closed = wait([worker.sentinel for worker in workers], _END_SECONDS)
    # The pipe of a sentinel, too, closes before its process can be waited for.
    while closed and all(worker.is_alive() for worker in workers) and time.monotonic() < until:
        time.sleep(0.001)


def _leave(error: Exception, frame: FrameType | None) -> NoReturn:
    """End this process with an exception, of which is said what Python would say. `frame`: the innermost one of its traceback."""
    found = error.__traceback__
    while frame is not None:
        found = TracebackType(found, frame, frame.f_lasti, line_of(frame))
        frame = frame.f_back
    error.__traceback__ = found
    hide_our_frames(error)
    try:
        # The hook may be the script's own.
        with suppress(Exception):
            sys.excepthook(type(error), error, error.__traceback__)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
    finally:
        os._exit(1)
