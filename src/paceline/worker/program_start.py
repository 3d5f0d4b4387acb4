"""What was there when this process began to run the rank's program: which process it was, and where its output led."""

import os
import stat

_pid = 0
_pipes: dict[int, int] = {}


def note() -> None:
    """The program begins."""
    global _pid, _pipes
    _pid, _pipes = os.getpid(), _output_pipes_now()


def was_here() -> bool:
    """Whether this process runs the rank's program, and is not one that the program has started."""
    return _pid == os.getpid()


def output_pipes() -> dict[int, int]:
    """Descriptor -> pipe, of stdout and stderr before the program could lead them elsewhere; one that was no pipe is left out."""
    return dict(_pipes) if was_here() else _output_pipes_now()


def pipe_of(descriptor: int) -> int | None:
    """The number of the pipe to which a descriptor leads; None: to no pipe."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_ino if stat.S_ISFIFO(found.st_mode) else None


def _output_pipes_now() -> dict[int, int]:
    return {descriptor: pipe for descriptor in (1, 2) if (pipe := pipe_of(descriptor)) is not None}
