"""How a rank exits: the gate closes when the main thread ends, and the ring gets its last words when the exit handlers have run.

`watch` closes the gate before any other step of the interpreter's exit. Threads that Python waits for may still train then; the ring
also records when these threads have ended. The exit handler that calls `last_words` was registered before every other exit handler,
so it runs after the script's own handlers. It only writes mapped memory. Later parts of the exit (destructors, torch's static
objects) can hang. The agent then ends the process, and needs the exit code that the process would have returned. If the process dies
in these parts, it dies as it would without paceline.
"""

import functools
import sys
import threading
import time

from ..recording.ring import Cell, RankPhase
from . import exit_code, gate
from .rank_recorder import this_rank
from .signal_handlers import let_through


def watch() -> None:
    """Close the gate in the first step of the interpreter's exit, which waits for the script's threads, and note when they have ended."""
    shut_down = threading._shutdown  # type: ignore[attr-defined]

    @functools.wraps(shut_down)
    def close_first() -> None:
        try:
            _main_thread_is_done()
        finally:
            try:
                shut_down()
            finally:
                _threads_are_done()

    threading._shutdown = close_first  # type: ignore[attr-defined]


def last_words() -> None:
    """Write into the ring that the process exits, and its exit code. Never raises."""
    ring = this_rank.ring
    if ring is None:
        return
    try:
        # The script replaced the function that `watch` installed.
        gate.close(ring)
        this_rank.leave()
        meant = exit_code.meant_code(this_rank.step_count)
        ring.cells[Cell.EXIT_CODE] = meant or 0
        ring.cells[Cell.EXIT_CODE_KNOWN] = int(meant is not None or not exit_code.may_go_unseen)
        ring.cells[Cell.LEFT_BY] = 3 if meant is not None and exit_code.cut_short else 2
        if meant is not None:
            ring.text("left_at", exit_code.left_at)
        ring.cells[Cell.EXIT_NS] = time.time_ns()
        ring.cells[Cell.EXIT_STATE] = 1
        this_rank.phase(RankPhase.EXITING)
    except Exception as error:
        let_through(error)


def _main_thread_is_done() -> None:
    try:
        if this_rank.ring is not None:
            gate.close(this_rank.ring)
        _report_unseen_exception()
    except Exception as error:
        this_rank.drop("exit", error)


def _threads_are_done() -> None:
    ring = this_rank.ring
    if ring is not None:
        ring.cells[Cell.FINALIZING_NS] = ring.cells[Cell.FINALIZING_NS] or time.time_ns()


def _report_unseen_exception() -> None:
    # Another package replaced sys.excepthook after us (rich and IPython do). Python keeps the exception for debuggers.
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        from . import error_file

        error_file.report(error)
