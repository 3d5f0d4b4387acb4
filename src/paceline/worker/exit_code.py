"""The exit code that the script meant. Python keeps the argument of `sys.exit` nowhere, so it is noted on its way."""

import functools
import sys
from typing import Any, NoReturn

_meant: int | None = None


def meant_code() -> int | None:
    """None: the script has said nothing, so it means 0 unless it raises SystemExit itself."""
    return _meant


def note(code: int) -> None:
    """The process is about to leave with this code."""
    global _meant
    _meant = code


def watch() -> None:
    """Wrap `sys.exit`. In torch processes only, where the code may be asked for."""
    leave = sys.exit

    @functools.wraps(leave)
    def exit(status: Any = None, /) -> NoReturn:
        note(_code_of(status))
        leave(status)

    sys.exit = exit


def _code_of(status: object) -> int:
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1
