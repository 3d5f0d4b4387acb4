"""Runs a rank's program in a process that has run other code before: a fork of the fork server, or `run_script.py`.

What the program finds is what `python -u` would give it: `sys.argv`, `sys.orig_argv` and a new `__main__`. In a job with
`--resume auto` its loops, and those of the user's modules that it imports, can go on after a restart.
"""

import builtins
import contextlib
import importlib.machinery
import os
import runpy
import sys
import types
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from . import program_start

_HERE = os.path.dirname(__file__) + os.sep


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


def is_resumable() -> bool:
    """Whether the agent keeps a state buffer for this rank."""
    return "PACELINE_STATE_FD" in os.environ


def code_of(script: str) -> types.CodeType:
    """The code that runs for this script.

    Raises:  OSError: the file cannot be read
             SyntaxError, ValueError: it is not Python
    """
    path = os.path.join(os.getcwd(), script)
    with open(path, "rb") as file:
        source = file.read()
    if is_resumable():
        from .error_file import is_users
        from .resume.insert import transform

        # A file may be nested too deeply for a syntax tree, but not for the parser alone.
        with contextlib.suppress(RecursionError):
            if is_users(path):
                return transform(source, path)
    return compile(source, path, "exec", dont_inherit=True)


def run(argv: list[str], options: list[str], code: types.CodeType | None = None) -> None:
    """Be this program. `options`: of Python, in front of it. `code`: of the script, if it has been compiled.

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
        if is_resumable():
            from .resume.insert import watch_imports

            watch_imports(first_path(argv))
            if not is_module:
                code = code or code_of(argv[0])
            # A fork has imported torch already.
            if "torch" in sys.modules:
                from .resume import begin

                begin()
        if is_module:
            runpy._run_module_as_main(argv[1])  # type: ignore[attr-defined]
            return
        path = os.path.join(os.getcwd(), argv[0])
        main_module.__dict__.update(
            __file__=path, __cached__=None, __loader__=importlib.machinery.SourceFileLoader("__main__", path)
        )
        exec(code or code_of(argv[0]), main_module.__dict__)
    except BaseException:
        _leave_our_frames_out()
        raise


def _leave_our_frames_out() -> None:
    """Give the hook that prints the exception of this program its traceback as it would be without us."""
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        return

    def excepthook(kind: type[BaseException], error: BaseException, found: TracebackType | None) -> None:
        while found is not None and found.tb_frame.f_code.co_filename.startswith(_HERE):
            found = found.tb_next
        error.__traceback__ = sys.last_traceback = found
        hook(kind, error, found)

    sys.excepthook = excepthook
