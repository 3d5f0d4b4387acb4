"""Wraps prctl(2), which Python's standard library does not have. Standard library only."""

import ctypes
from enum import IntEnum


class Prctl(IntEnum):
    """The options, with the numbers of <linux/prctl.h>."""

    SET_PDEATHSIG = 1
    """Signal that the kernel sends to this process when the thread that forked it has ended."""
    SET_TIMERSLACK = 29
    """Nanoseconds by which the kernel may wake this thread late."""
    SET_CHILD_SUBREAPER = 36
    """1: orphaned descendants become children of this process; 0: they become children of its own reaper."""
    GET_CHILD_SUBREAPER = 37


def set_process(option: Prctl, value: int) -> None:
    """Set the option for the calling process. A failure is ignored: each of these options helps, and none is required."""
    ctypes.CDLL(None).prctl(int(option), ctypes.c_ulong(value), 0, 0, 0)


def is_subreaper() -> bool:
    """Whether orphaned descendants become children of this process."""
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(int(Prctl.GET_CHILD_SUBREAPER), ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)
