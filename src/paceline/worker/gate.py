"""The gate of this process: open while the script runs, closed for good once its main thread has come to the end.

A traceback that torch's worker server is asked for needs the GIL. Python ends every thread that wants the GIL while the interpreter
finalizes, and C++ answers that with an abort of the process: finalizers are cut off, files are missing. Whoever asks the server
therefore holds a shared lock on the gate's file, from before it asks until it has its answer. This process takes the lock for itself
before any other step of its exit: that waits for the questions under way, and refuses every later one. The kernel drops the lock of
an asker that dies. Looks from outside (/proc, py-spy) need no gate.
"""

import fcntl
import os
import time
from pathlib import Path

from ..recording.ring import Cell, RingWriter

# With the GIL at hand an answer takes milliseconds. Only an asker that is stopped takes longer, and the exit waits no longer for it.
MOST_SECONDS = 5.0
_TURN_SECONDS = 0.001
# An asker that died has let go of the lock, and its question may still be on its way.
_LAST_SECONDS = 0.005

_file: Path | None = None


def make(path: Path) -> None:
    """Make the gate of this process, open.

    Raises:  OSError: the file cannot be written
    """
    global _file
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _file = path


def close(ring: RingWriter) -> None:
    """Refuse every question from now on, and wait for those under way. Does nothing a second time."""
    if ring.cells[Cell.LEAVING_NS]:
        return
    ring.cells[Cell.LEAVING_NS] = time.time_ns()
    if _file is None:
        return
    try:
        # Kept until the process is gone, and the lock with it.
        descriptor = os.open(_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # No descriptor is left, or the agent is gone with its directory: at least nobody finds the server any more.
        _file.with_suffix(".sock").unlink(missing_ok=True)
        return
    ends_at = time.monotonic() + MOST_SECONDS
    while not _locked(descriptor) and time.monotonic() < ends_at:
        # Lets go of the GIL, which the answer under way may need.
        time.sleep(_TURN_SECONDS)
    time.sleep(_LAST_SECONDS)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
