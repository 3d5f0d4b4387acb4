"""prctl(2), for which Python's standard library has no call. Standard library only."""

import ctypes
from enum import IntEnum


class Prctl(IntEnum):
    """What is set or asked for, as <linux/prctl.h> numbers it."""

    SET_PDEATHSIG = 1
    """Signal that the kernel sends to this process once the thread that forked it has ended."""
    SET_TIMERSLACK = 29
    """Nanoseconds by which the kernel may wake this thread late."""
    SET_CHILD_SUBREAPER = 36
    """1: orphans among the descendants become children of this process; 0: of its own reaper."""
    GET_CHILD_SUBREAPER = 37


def set_process(option: Prctl, value: int) -> None:
    """Set it for the calling process. A kernel that refuses is not asked again: each of these is a help, no condition."""
    ctypes.CDLL(None).prctl(int(option), ctypes.c_ulong(value), 0, 0, 0)


def is_subreaper() -> bool:
    """Whether orphans among the descendants come to this process."""
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(int(Prctl.GET_CHILD_SUBREAPER), ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)
