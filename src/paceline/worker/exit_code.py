"""The exit code that the script meant. Python keeps the argument of `sys.exit` nowhere, so it is noted on its way."""

import functools
import linecache
import re
import sys
from _thread import get_ident
from collections.abc import Callable
from pathlib import Path
from threading import main_thread
from typing import Any, NoReturn

# The usual last line of a program, which says nothing of why it ends.
_LAST_LINE = re.compile(r"exit\(\s*[\w.]+\(")
_MAY_EXIT = re.compile(rb"SystemExit|(?<![\w.])(?:exit|quit)\s*\(")

cut_short = False
"""Whether the script left by a call of sys.exit that is not its usual last line."""
may_go_unseen = False
"""Whether the script can leave with a code past `sys.exit`, of which no trace is left when exit handlers run."""
_meant: int | None = None
_step_then: int | None = None


def meant_code(step_count: int) -> int | None:
    """None: the script has said nothing, so it means 0 unless it raises SystemExit itself.

    A script that trained on since it spoke has caught its own SystemExit, as around argparse: it has said nothing.
    """
    return _meant if _step_then in (None, step_count) else None


def note(code: int, step_count: int | None = None) -> None:
    """The process is about to leave with this code, after so many steps; None: it is past training."""
    global _meant, _step_then
    _meant, _step_then = code, step_count


def watch(step_count: Callable[[], int]) -> None:
    """Wrap `sys.exit`. In torch processes only, where the code may be asked for."""
    leave = sys.exit

    @functools.wraps(leave)
    def exit(status: Any = None, /) -> NoReturn:
        # In any other thread it ends that thread.
        if get_ident() == main_thread().ident:
            note(_code_of(status), step_count())
            _look_at_caller(sys._getframe(1))
        leave(status)

    sys.exit = exit
    for module in list(sys.modules.values()):
        # `from sys import exit` stands above `import torch` where imports are sorted.
        names = getattr(module, "__dict__", {})
        if names.get("exit") is leave:
            names["exit"] = exit


def read_script() -> None:
    """Look, while there is time to read a file, for the ways past `sys.exit` in the script."""
    global may_go_unseen
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        may_go_unseen = path is not None and _MAY_EXIT.search(Path(path).read_bytes()) is not None
    except OSError:
        may_go_unseen = True


def _look_at_caller(frame: Any) -> None:
    global cut_short
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    cut_short = bool(line) and not _LAST_LINE.search(line)


def _code_of(status: object) -> int:
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1
