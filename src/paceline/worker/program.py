"""Runs a rank's program in a process that has run other code before: a fork of the fork server, or `run_script.py`.

What the program finds is what `python -u` would give it: `sys.argv`, `sys.orig_argv` and a new `__main__`. A part may compile its script.
"""

import builtins
import contextlib
import importlib.machinery
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from . import program_start

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep


def first_path(argv: list[str], directory: str = "") -> str:
    """The directory that Python puts first on sys.path for this program. `argv`: script and arguments, or "-m" and so on."""
    here = os.path.abspath(directory)
    return here if argv[0] == "-m" else os.path.dirname(os.path.realpath(os.path.join(here, argv[0])))


def hidden_by(first: str, names: Iterable[str]) -> str | None:
    """Why a program of this directory would import other modules than those with these names that are loaded here; None: it would not."""
    loaded = {name.partition(".")[0] for name in names} - {"__main__"}
    with contextlib.suppress(OSError):
        for entry in os.scandir(first):
            name, suffix = os.path.splitext(entry.name)
            is_module = suffix in (".py", ".so", ".pyc") or os.path.exists(os.path.join(entry.path, "__init__.py"))
            if is_module and name.partition(".")[0] in loaded:
                return entry.path
    return None


def run(argv: list[str], options: list[str], before: Callable[[list[str]], types.CodeType | None]) -> None:
    """Be this program. `options`: of Python, in front of it. `before`: called with `argv` first; returns the code of the script, or None.

    Raises:  what the program raises; our frames are not in what is printed of it
    """
    program_start.note()
    sys.orig_argv[1:] = [*options, *argv]
    is_module = argv[0] == "-m"
    sys.argv[:] = ["-m", *argv[2:]] if is_module else argv
    # Releases of Python differ in whether a new main module has this.
    annotations: dict[str, Any] = {"__annotations__": {}} if "__annotations__" in vars(sys.modules["__main__"]) else {}
    main_module = sys.modules["__main__"] = types.ModuleType("__main__")
    main_module.__dict__.update(__builtins__=builtins, **annotations)
    try:
        code = before(argv)
        if is_module:
            runpy._run_module_as_main(argv[1])  # type: ignore[attr-defined]
            return
        path = os.path.join(os.getcwd(), argv[0])
        main_module.__dict__.update(
            __file__=path, __cached__=None, __loader__=importlib.machinery.SourceFileLoader("__main__", path)
        )
        exec(code or _code_of(path), main_module.__dict__)
    except BaseException:
        _leave_our_frames_out()
        raise


def _code_of(path: str) -> types.CodeType:
    with open(path, "rb") as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def _leave_our_frames_out() -> None:
    """Give the hook that prints the exception of this program its traceback as it would be without us."""
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        return

    def excepthook(kind: type[BaseException], error: BaseException, found: TracebackType | None) -> None:
        while found is not None and found.tb_frame.f_code.co_filename.startswith(_OURS):
            found = found.tb_next
        error.__traceback__ = sys.last_traceback = found
        hook(kind, error, found)

    sys.excepthook = excepthook
