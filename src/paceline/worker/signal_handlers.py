"""Python's signal handlers: whether an exception is of one, and not an instrument's own; and whether a call is made in one."""

import os
import signal
from types import FrameType
from typing import Any

_MOST_FRAMES = 32
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


def signal_around(frame: FrameType | None) -> str:
    """The name of the signal in whose handler this frame runs; "" if it runs in none."""
    handlers = {_code(signal.getsignal(number)): number for number in signal.valid_signals()}
    handlers.pop(None, None)
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_back is None:
            break
        number = handlers.get(frame.f_code)
        if number is None and _was_given(frame, frame.f_back):
            number = next((one for one in frame.f_locals.values() if one in signal.valid_signals()), None)
        if number is not None:
            return signal.Signals(number).name
        frame = frame.f_back
    return ""


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
