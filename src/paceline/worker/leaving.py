"""The rank's last words.

torch can deadlock or abort while a process exits; the agent then ends the process and needs to know what it would have returned. The exit
handler that calls `last_words` was registered before every other one, so it runs after the script's own.

The agent can put that right for the processes that it started itself. A rank further down (a child of mp.spawn, the Python below a
shell script) answers to a parent that believes the signal. It still goes through the interpreter's whole shutdown: what the script
left in the buffers of open files is written there, and no guess at its exit code is as good as the code itself.
"""

import re
import sys
import time
from pathlib import Path

from ..recording.ring import Cell, Phase
from . import exit_code
from .this_rank import this_rank

# gloo's threads let go of their last work with the GIL in hand, and abort the process when they ask for it only once the interpreter
# shuts down. There is nothing to wait for by name, so they get the GIL for as long as such a thread needs at the most.
_FOR_GLOOS_THREADS_SECONDS = 0.005
_MAY_EXIT = re.compile(rb"SystemExit|(?<![\w.])(?:exit|quit)\s*\(")


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
        meant = exit_code.meant_code(this_rank.step_count)
        ring.cells[Cell.EXIT_CODE] = meant or 0
        ring.cells[Cell.EXIT_CODE_KNOWN] = int(meant is not None or not _may_raise_system_exit())
        ring.cells[Cell.LEFT_BY] = 3 if meant is not None and exit_code.cut_short else 2
        ring.cells[Cell.EXIT_NS] = time.time_ns()
        ring.cells[Cell.EXIT_STATE] = 1
        this_rank.phase(Phase.EXITING)
        if ring.cells[Cell.GROUP_COUNT]:
            time.sleep(_FOR_GLOOS_THREADS_SECONDS)
    except Exception:
        pass


def _report_unseen_exception() -> None:
    # Something replaced sys.excepthook after us (rich and IPython do). Python keeps the exception for debuggers.
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        from . import failure

        failure.report(error)


def _may_raise_system_exit() -> bool:
    """Whether the script can leave with a code past `sys.exit`, of which no trace is left when exit handlers run."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return path is not None and _MAY_EXIT.search(Path(path).read_bytes()) is not None
    except OSError:
        return True
