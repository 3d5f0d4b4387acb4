"""The frames and modules of the user's own files, and the variables in them that are kept."""

from __future__ import annotations

import ctypes
import dis
import os
import sys
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

from ....worker.error_file import is_users, users_frame
from ....worker.frame_line import line_of
from ....worker.module_namespace import namespace_of
from .insert import portable
from .liveness import live_names
from .plain_objects import has_changing_defaults


def is_in_call(frame: FrameType) -> bool:
    """Whether a frame is in a call that its own code makes, and not in a `for` that takes its next item."""
    code = frame.f_code.co_code
    return frame.f_lasti >= 0 and dis.opname[code[frame.f_lasti]].startswith(("CALL", "PRECALL"))


def users_frames(frame: FrameType | None) -> list[FrameType]:
    """All frames of the user, from this one outwards, the outermost first."""
    found = []
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found[::-1]


def users_place(frame: FrameType | None) -> str:
    """file:line of the innermost frame of the user; if there is none, of the frame."""
    found = users_frame(frame) or frame
    return "?" if found is None else f"{found.f_code.co_filename}:{line_of(found)}"


def name_of(frame: FrameType) -> tuple[str, str]:
    """File and function of a frame."""
    return portable(frame.f_code.co_filename), frame.f_code.co_qualname


def place_of(frame: FrameType) -> tuple[str, str, int]:
    """File, function and line of a frame."""
    return *name_of(frame), line_of(frame)


def live_names_of(frame: FrameType) -> frozenset[str] | None:
    """The variables of a frame that may still be read; None: all of them."""
    return live_names(frame.f_code, frame.f_lasti)


class UsersModules:
    """The imported modules of the user, by name. They are looked for again when a module was imported."""

    def __init__(self) -> None:
        self._count = 0
        self._names: list[str] = []

    def items(self) -> list[tuple[str, ModuleType]]:
        """Name and module."""
        if len(sys.modules) != self._count:
            self._count = len(sys.modules)
            self._names = [
                name for name, module in list(sys.modules.items()) if name == "__main__" or _is_of_user(name, module)
            ]
        return [(name, sys.modules[name]) for name in self._names if name in sys.modules]


def variables_of(module: ModuleType) -> dict[str, Any]:
    """The variables of a module that may change: not its own functions, and not what it has imported."""
    return {
        name: value for name, value in vars(module).items() if not name.startswith("__") and not _is_fixed(name, value)
    }


def set_variables(frame: FrameType, variables: dict[str, Any]) -> None:
    """Set local variables of a function that is being run."""
    space = frame.f_locals
    for name, value in variables.items():
        space[name] = value
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def _is_of_user(name: str, module: ModuleType) -> bool:
    file = namespace_of(module).get("__file__")
    # torch has modules with a name in place of a path. multiprocessing names the main module twice.
    return isinstance(file, str) and os.path.isabs(file) and is_users(file) and name != "__mp_main__"


def _is_fixed(name: str, value: Any) -> bool:
    if isinstance(value, ModuleType | BuiltinFunctionType):
        return True
    # A function that shares no variables with another one has no state but its attributes.
    if not isinstance(value, FunctionType) or value.__name__ != name or value.__closure__ or vars(value):
        return False
    return not has_changing_defaults(value)
