"""Hides the frames of paceline from torch.compile and from warnings.

Graphs, graph breaks and counters are the same as without paceline. A warning names the same line as without paceline: a warning counts
frames upwards from where it is raised, and the replacements are not counted.
"""

from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

from .signal_handlers import let_through

F = TypeVar("F")
# `warnings` takes a file for part of the import system if its name contains both words.
_NO_FRAME = "/importlib._bootstrap"


def left_alone_by_compile(function: F) -> F:
    """Mark a replacement. Traced, it breaks the graph where torch's original method does; called untraced, it is never compiled.

    Raises nothing: a torch without these marks treats the function as any other Python function.
    """
    passed_over_by_warnings(function)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    skipped: F = _skipped(function)
    return skipped


def passed_over_by_warnings(function: F) -> F:
    """Give a replacement's frames a file name that Python's warnings skip as their own, in C and in Python, since Python 3.3."""
    code = function.__code__  # type: ignore[attr-defined]
    function.__code__ = code.replace(co_filename=f"{code.co_filename}{_NO_FRAME}")  # type: ignore[attr-defined]
    return function


def leave_module_alone(module: ModuleType) -> None:
    """Do the same for the functions that replacements call: all functions and methods in the file of one of paceline's modules."""
    classes = [member for member in vars(module).values() if isinstance(member, type)]
    for owner in (module, *classes):
        for member in vars(owner).values():
            # Functions with the same decorator may share one code object.
            if isinstance(member, FunctionType) and member.__code__.co_filename.startswith(str(module.__file__)):
                _skipped(member)


def _skipped(function: Any) -> Any:
    try:
        _skip_code(function.__code__)
        # Comprehensions and functions in it have frames of their own.
        for constant in function.__code__.co_consts:
            if isinstance(constant, CodeType):
                _skip_code(constant)
    except Exception as error:
        let_through(error)
    return function


def _skip_code(code: CodeType) -> None:
    from torch._C._dynamo import eval_frame

    older = getattr(eval_frame, "skip_code", None)
    if older is not None:
        older(code)
        return
    only_this_frame = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
    eval_frame.set_code_exec_strategy(code, only_this_frame)
