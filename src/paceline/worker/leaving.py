"""The exit code that the script meant, and the rank's last words.

torch can deadlock while a process exits; the agent then ends the process and needs to know what it would have returned. The exit
handler that calls `last_words` was registered before every other one, so it runs after the script's own.
"""

import functools
import os
import sys
import time
from pathlib import Path

from ..recording.ring import Cell, Phase
from .this_rank import this_rank

_meant: int | None = None


def meant(code: int) -> None:
    """Note the exit code that the process is about to leave with."""
    global _meant
    _meant = code


def watch_exit_code() -> None:
    """Wrap `sys.exit`, whose argument nothing keeps."""
    leave = sys.exit

    @functools.wraps(leave)
    def exit(status: object = None, /) -> None:
        meant(_code_of(status))
        leave(status)

    sys.exit = exit  # type: ignore[assignment]


def last_words() -> None:
    """Flush the script's output, then say in the ring that the process exits and with which code. Never raises."""
    try:
        _report_unseen_exception()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except Exception:
        pass
    ring = this_rank.ring
    if ring is None:
        return
    try:
        this_rank.leave()
        ring.cells[Cell.EXIT_CODE] = _meant or 0
        ring.cells[Cell.EXIT_CODE_KNOWN] = int(_meant is not None or not _may_raise_system_exit())
        ring.cells[Cell.EXIT_NS] = time.time_ns()
        ring.cells[Cell.EXIT_STATE] = 1
        this_rank.phase(Phase.EXITING)
    except Exception:
        pass


def _report_unseen_exception() -> None:
    # Something replaced sys.excepthook after us (rich and IPython do). Python keeps the exception for debuggers.
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        from . import failure

        failure.report(error)


def _may_raise_system_exit() -> bool:
    """Whether the script can leave with a code by `raise SystemExit(code)`, of which no trace is left when exit handlers run."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return path is not None and b"SystemExit" in Path(path).read_bytes()
    except OSError:
        return True


def _code_of(status: object) -> int:
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1


def in_worker_process() -> bool:
    """Whether the agent itself started this process: a worker leads a session of its own."""
    return os.getsid(0) == os.getpid()
