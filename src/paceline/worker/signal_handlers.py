"""Tells an instrument's own failure from an exception that a signal handler raised while the instrument was at work."""

import signal
from typing import Any


def is_of_a_handler(error: BaseException) -> bool:
    """Whether one of Python's signal handlers raised the error, whatever code it interrupted."""
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> object:
    for function in (handler, getattr(handler, "func", None), handler.__call__ if callable(handler) else None):
        code = getattr(function, "__code__", None)
        if code is not None:
            return code
    return None
