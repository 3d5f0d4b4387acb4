"""Keeps torch.compile and warnings away from the frames of paceline.

Graphs, breaks and counters are those of the script alone, and a warning names the line that it names without paceline: it counts so many
frames up from where it is raised, and the replacements are none of them.
"""

from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

F = TypeVar("F")
# `warnings` takes a file for a part of the import system if both words are in its name.
_NO_FRAME = "/importlib._bootstrap"


def left_alone_by_compile(function: F) -> F:
    """Mark a replacement: traced, it breaks the graph where the original method of torch does; met while running, it is not compiled.

    Raises nothing: in a torch without these marks it is as any other Python function.
    """
    passed_over_by_warnings(function)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    skipped: F = _skipped(function)
    return skipped


def passed_over_by_warnings(function: F) -> F:
    """Give a replacement's frames a file name that Python's warnings pass over as its own, in C as in Python, since 3.3."""
    code = function.__code__  # type: ignore[attr-defined]
    function.__code__ = code.replace(co_filename=f"{code.co_filename}{_NO_FRAME}")  # type: ignore[attr-defined]
    return function


def leave_module_alone(module: ModuleType) -> None:
    """The same for what the replacements call: all functions and methods that stand in the file of a module of ours."""
    classes = [member for member in vars(module).values() if isinstance(member, type)]
    for owner in (module, *classes):
        for member in vars(owner).values():
            # A decorated function may have one code with every other function that is decorated so.
            if isinstance(member, FunctionType) and member.__code__.co_filename == module.__file__:
                _skipped(member)


def _skipped(function: Any) -> Any:
    try:
        _skip_code(function.__code__)
    except Exception:
        pass
    return function


def _skip_code(code: CodeType) -> None:
    from torch._C._dynamo import eval_frame

    older = getattr(eval_frame, "skip_code", None)
    if older is not None:
        older(code)
        return
    only_this_frame = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
    eval_frame.set_code_exec_strategy(code, only_this_frame)
