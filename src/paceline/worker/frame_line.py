"""The line at which a frame is, also where Python gives it none. Pure."""

from types import FrameType


def line_of(frame: FrameType) -> int:
    """The line of a frame; between two lines, where a handler of a signal may be called (as at a jump back to `for`), the one before."""
    if frame.f_lineno is not None:
        return frame.f_lineno
    code = frame.f_code
    before = [line for start, _, line in code.co_lines() if line is not None and start <= frame.f_lasti]
    return before[-1] if before else code.co_firstlineno
