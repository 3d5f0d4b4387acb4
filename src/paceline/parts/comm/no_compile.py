"""Keeps torch.compile away from the code of a process group."""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def uncompiled(made: _Class) -> _Class:
    """Class decorator: its methods, and the functions that they call, run as plain Python inside a compiled function.

    torch.compile traces every Python frame that a compiled model reaches, and ends the whole run with an error at an attribute of a process
    group that it does not know. gloo has no frames of Python. torch.compiler.disable would load the compiler, two seconds, for everyone.
    """
    strategy, mark = _skipping()
    if mark is not None:
        for member in vars(made).values():
            function = member.fget if isinstance(member, property) else member
            if isinstance(function, FunctionType):
                mark(function.__code__, strategy)
    return made


def _skipping() -> tuple[Any, Any]:
    try:
        # torch >= 2.7; an older one has no way to skip what a frame calls without loading its compiler.
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:
        return None, None
    return _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP), set_code_exec_strategy
