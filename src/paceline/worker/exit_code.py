"""The exit code that the script meant, and the call that ended it. Python does not keep the argument of `sys.exit`: a wrapper notes it."""

import functools
import linecache
import os
import re
import sys
from _thread import get_ident
from collections.abc import Callable
from pathlib import Path
from threading import main_thread
from typing import Any, NoReturn

from .frame_line import line_of
from .module_namespace import namespace_of
from .signal_handlers import let_through, signal_around

# The usual last line of a program. It does not tell why the program ends.
_LAST_LINE = re.compile(r"exit\(\s*[\w.]+\(")
_MOST_PATH_BYTES = 120
_MAY_EXIT = re.compile(rb"SystemExit|(?<![\w.])(?:exit|quit)\s*\(")

cut_short = False
"""Whether a call of sys.exit ended the script, other than its usual last line."""
may_go_unseen = False
"""Whether the script can exit with a code without `sys.exit`. Exit handlers find no trace of such a code."""
left_at = ""
"""The last call of sys.exit or os._exit in the main thread, as RingHeader.left_at has it."""
_meant: int | None = None
_step_then: int | None = None


def meant_code(step_count: int) -> int | None:
    """The noted exit code, or None if the script noted none. None means 0, unless the script raises SystemExit itself.

    If the script made steps after the note, it caught its own SystemExit, as code around argparse does: the note does not count.
    """
    return _meant if _step_then in (None, step_count) else None


def note(code: int, step_count: int | None = None) -> None:
    """Note the code with which the process is about to exit, and its step count. None: training has ended, so no count is compared."""
    global _meant, _step_then
    _meant, _step_then = code, step_count


def watch(step_count: Callable[[], int]) -> None:
    """Wrap `sys.exit`. This happens only in processes that import torch, because only their code is asked for."""
    leave = sys.exit

    @functools.wraps(leave)
    def exit(status: Any = None, /) -> NoReturn:
        try:
            # In any other thread, sys.exit ends that thread only.
            if get_ident() == main_thread().ident:
                note(_code_of(status), step_count())
                _note_call(sys._getframe(1), f"sys.exit({'' if status is None else _code_of(status)})")
                _look_at_line(sys._getframe(1))
        except Exception as error:
            let_through(error)
        leave(status)

    sys.exit = exit
    for module in list(sys.modules.values()):
        # In a script with sorted imports, `from sys import exit` comes before `import torch`.
        names = namespace_of(module)
        if names.get("exit") is leave:
            names["exit"] = exit


def watch_the_hard_way(tell: Callable[[], None]) -> None:
    """Wrap `os._exit`, after which nothing of the interpreter runs: `tell` is called before it."""
    leave = os._exit

    @functools.wraps(leave)
    def _exit(status: int) -> NoReturn:
        try:
            if get_ident() == main_thread().ident:
                _note_call(sys._getframe(1), f"os._exit({status})")
                tell()
        finally:
            leave(status)

    _exit.__module__ = "os"
    os._exit = _exit


def read_script() -> None:
    """Look in the script for exits without `sys.exit`, while there is time to read a file."""
    global may_go_unseen
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        may_go_unseen = path is not None and _MAY_EXIT.search(Path(path).read_bytes()) is not None
    except OSError:
        may_go_unseen = True


def _look_at_line(frame: Any) -> None:
    global cut_short
    line = linecache.getline(frame.f_code.co_filename, line_of(frame))
    cut_short = bool(line) and not _LAST_LINE.search(line)


def _note_call(frame: Any, call: str) -> None:
    global left_at
    code, signal = frame.f_code, signal_around(frame)
    # The end of a path says more than its beginning.
    file = code.co_filename.encode("utf-8", "replace")[-_MOST_PATH_BYTES:].decode("utf-8", "ignore")
    function = "" if code.co_name == "<module>" else f" in {code.co_name}"
    left_at = f"{file}:{line_of(frame)}{function}, {f'the handler of {signal}, ' if signal else ''}by {call}"


def _code_of(status: object) -> int:
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1
