"""Which process runs the rank's program: not one that the program has started."""

import os

_pid = 0


def note() -> None:
    """The program begins."""
    global _pid
    _pid = os.getpid()


def was_here() -> bool:
    """Whether this process runs the rank's program, and is not one that the program has started."""
    return _pid == os.getpid()
