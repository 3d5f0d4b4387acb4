"""Keeps torch.compile away from the frames of paceline, so that graphs, breaks and counters are those of the script alone."""

from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

F = TypeVar("F")


def left_alone_by_compile(function: F) -> F:
    """Mark a replacement: traced, it breaks the graph where the original method of torch does; met while running, it is not compiled.

    Raises nothing: in a torch without these marks it is as any other Python function.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    skipped: F = _skipped(function)
    return skipped


def leave_methods_alone(owner: type | ModuleType) -> None:
    """The same for what the replacements call: the methods of a class or the functions of a module."""
    for member in vars(owner).values():
        if isinstance(member, FunctionType):
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
