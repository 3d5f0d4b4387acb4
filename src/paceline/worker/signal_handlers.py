"""Python's signal handlers: whether an exception is of one, and not an instrument's own; and whether a call is made in one."""

import os
import signal
from inspect import CO_VARARGS
from itertools import pairwise
from types import FrameType
from typing import Any

_MOST_FRAMES = 32
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def is_of_a_handler(error: BaseException) -> bool:
    """Whether one of Python's signal handlers raised the error, whatever code it interrupted.

    A handler may have been replaced meanwhile, by itself. It is known by its arguments too: the signal and the frame that it interrupted.
    """
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace, interrupted = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code in handlers or _signal_given(trace.tb_frame, interrupted) is not None:
            return True
        interrupted = trace.tb_frame
        trace = trace.tb_next
    return False


def let_through(error: BaseException) -> None:
    """Raise the error again if a signal handler raised it."""
    if is_of_a_handler(error):
        raise error


def signal_around(frame: FrameType | None) -> str:
    """The name of the signal in whose handler this frame runs; "" if it runs in none."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        if (number := _signal_given(frame, frame.f_back)) is not None:
            return next((one.name for one in signal.Signals if one == number), f"signal {number}")
        frame = frame.f_back
    return ""


def _signal_given(frame: FrameType, interrupted: FrameType | None) -> int | None:
    """The signal, if this frame was called as handlers are: with its number and the frame that it interrupted."""
    code = frame.f_code
    if interrupted is None or code.co_filename.startswith(_OURS):
        return None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)]
    values = [frame.f_locals.get(name) for name in names]
    given = [one for value in values for one in (value if type(value) is tuple else (value,))]
    for number, held in pairwise(given):
        if held is interrupted and isinstance(number, int) and number in signal.valid_signals():
            return number
    return None


def _code(handler: Any) -> object:
    try:
        for function in (handler, getattr(handler, "func", None), handler.__call__ if callable(handler) else None):
            if (code := getattr(function, "__code__", None)) is not None:
                return code
    except Exception:
        # The user's object raises when it is asked for what it does not have.
        pass
    return None
