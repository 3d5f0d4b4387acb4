"""The rank's last words.

torch can deadlock or abort while a process exits; the agent then ends the process and needs to know what it would have returned. The exit
handler that calls `last_words` was registered before every other one, so it runs after the script's own.

The agent can put that right for the processes that it started itself. A rank further down (a child of mp.spawn, the Python below a
shell script) answers to a parent that believes the signal, so it leaves here without going through the interpreter's shutdown, as
multiprocessing lets its forked children do.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

from ..recording.ring import Cell, Phase
from . import exit_code
from .this_rank import this_rank


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
        meant = exit_code.meant_code()
        ring.cells[Cell.EXIT_CODE] = meant or 0
        ring.cells[Cell.EXIT_CODE_KNOWN] = int(meant is not None or not _may_raise_system_exit())
        ring.cells[Cell.EXIT_NS] = time.time_ns()
        ring.cells[Cell.EXIT_STATE] = 1
        this_rank.phase(Phase.EXITING)
        if ring.cells[Cell.EXIT_CODE_KNOWN] and os.getsid(0) != os.getpid():
            ctypes.CDLL(None).fflush(None)
            os._exit(meant or 0)
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
