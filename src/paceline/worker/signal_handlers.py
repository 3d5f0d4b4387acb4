"""Tells an instrument's own failure from an exception that a signal handler raised while the instrument was at work."""

import os
import signal
from types import FrameType
from typing import Any

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def is_of_a_handler(error: BaseException) -> bool:
    """Whether one of Python's signal handlers raised the error, whatever code it interrupted.

    A handler may have been replaced meanwhile, by itself. It is known by its second argument too: the frame that it interrupted.
    """
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace, interrupted = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code in handlers or _was_given(trace.tb_frame, interrupted):
            return True
        interrupted = trace.tb_frame
        trace = trace.tb_next
    return False


def let_through(error: BaseException) -> None:
    """Raise the error again if a signal handler raised it."""
    if is_of_a_handler(error):
        raise error


def _was_given(frame: FrameType, interrupted: FrameType | None) -> bool:
    if interrupted is None or frame.f_code.co_filename.startswith(_OURS):
        return False
    given = list(frame.f_locals.values())
    given += [one for value in given if type(value) is tuple for one in value]
    return any(value is interrupted for value in given)


def _code(handler: Any) -> object:
    for function in (handler, getattr(handler, "func", None), handler.__call__ if callable(handler) else None):
        code = getattr(function, "__code__", None)
        if code is not None:
            return code
    return None
