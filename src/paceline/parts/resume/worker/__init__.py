"""Keeps the training state of a rank outside of it, and puts it back in a new process. Only a job with `--resume auto` loads this package.

session.py           at the head of the training loop: keep the state, or put it back
loops.py             the loops of the script, and how far each is
loaders.py           the positions of data loaders' iterators, and the random numbers of their workers
lost_worker.py       what is done where a loader worker was killed
frames.py            the user's frames and modules, and the variables that are kept
liveness.py          which variables may still be read
insert.py            puts `loop`, `before_while` and `again` into the heads of the loops of the user's files
object_graph.py      objects as plain data, and back into the objects of a new process; kinds.py lists the kinds of objects
shared_memory.py     which tensors share memory
buckets.py           the order in which DistributedDataParallel adds gradients
exchanges.py         what paceline's own gradient strategies keep between two steps
random_state.py      the global generators of random numbers
batches.py           a checksum of the next batch
trainers.py          Trainers of libraries, and how they resume by themselves
descriptors.py       numbers of open files in the script's variables
frequency.py         how often the state is kept
slots.py             writes and reads the state buffer
"""

from __future__ import annotations

import builtins
import fcntl
import os
import sys
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import ResumeSession

VARIABLE = "PACELINE_STATE_FD"
_session: ResumeSession | None = None


def before_program(argv: list[str], code: CodeType | None = None) -> CodeType | None:
    """Let the loops of this program go on after a restart. Returns the code of its script. `code`: that, if it has been compiled.

    Raises:  OSError, SyntaxError, ValueError: see insert.code_of
    """
    from ....worker.program import first_path
    from .insert import code_of, watch_imports

    watch_imports(first_path(argv))
    if argv[0] != "-m":
        code = code or code_of(argv[0])
    # A fork has imported torch already.
    if "torch" in sys.modules:
        begin()
    return code


def begin(torch: Any = None) -> None:
    """Begin to keep the state of this process, if the agent gave it a state buffer. torch has been imported."""
    global _session
    if "resume" in os.environ.get("PACELINE_OFF", "").lower().replace(" ", "").split(","):
        return
    number = os.environ.pop(VARIABLE, "")
    from ....worker import program_start

    # A program that the script has started, such as two at once, may have inherited the buffer.
    if not number.isdigit() or not program_start.was_here():
        return
    from ..recording.state_buffer import is_buffer

    descriptor = int(number)
    if not is_buffer(descriptor):
        # The script has closed it before it imported torch. The agent sees that this rank keeps nothing.
        return
    from .session import ResumeSession

    fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    _session = ResumeSession(descriptor)
    builtins.__paceline_loop__ = loop  # type: ignore[attr-defined]
    builtins.__paceline_while__ = before_while  # type: ignore[attr-defined]
    builtins.__paceline_again__ = again  # type: ignore[attr-defined]
    builtins.__paceline_extra__ = []  # type: ignore[attr-defined]
    _session.begin()


def loop(line: int, source: Iterable[Any], frame: FrameType | None = None) -> Iterable[Any]:
    """What a `for` of the user runs over: the same items, followed. `frame`: of the `for`; None: the caller's."""
    # torch.compile traces this function, and finds nothing in it.
    if sys.modules["torch"].compiler.is_compiling():
        return source
    if _session is None or not _session.follows():
        return source
    return _session.loops.follow(line, source, frame or sys._getframe(1))


def before_while(line: int, last_line: int) -> None:
    """The script comes to a `while` of the user, whose body ends at `last_line`."""
    if sys.modules["torch"].compiler.is_compiling():
        return
    if _session is not None and _session.follows():
        _session.loops.come_to_while(line, last_line, sys._getframe(1))


def again(line: int) -> bool:
    """A `while` of the user is about to look whether it goes on. True."""
    if sys.modules["torch"].compiler.is_compiling():
        return True
    if _session is not None and _session.loops.whiles and _session.follows():
        _session.loops.go_on_in_while(line, sys._getframe(1))
    return True
