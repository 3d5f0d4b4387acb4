"""The gate of this process: it is open while the script runs, and closes for good when the main thread ends.

torch's worker server needs the GIL to answer with a traceback. While the interpreter finalizes, Python ends every thread that wants the
GIL, and C++ then aborts the process: finalizers are cut off, and files are missing. So every process that asks the server
holds a shared lock on the gate's file, from before the question until the answer. This process takes an exclusive lock
before any other step of its exit: that waits for the open questions. It removes the file first, which refuses every later question; else
processes that ask in turns could hold the lock for ever. If an asking process dies, the kernel releases its lock. Inspection from
outside (/proc, py-spy) needs no gate.
"""

import fcntl
import os
import time
from pathlib import Path

from ..recording.ring import Cell, RingWriter

# An answer takes milliseconds if the GIL is free. It takes longer only if the asking process is stopped, and the exit does not wait longer.
MOST_SECONDS = 5.0
_TURN_SECONDS = 0.001
# A process that asked and died has released the lock, but its question may still arrive.
_LAST_SECONDS = 0.005

_file: Path | None = None


def make(path: Path) -> None:
    """Create the gate of this process, open.

    Raises:  OSError: the file cannot be written
    """
    global _file
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _file = path


def close(ring: RingWriter) -> None:
    """Refuse every later question, and wait for the open questions. A second call does nothing."""
    if ring.cells[Cell.LEAVING_NS]:
        return
    ring.cells[Cell.LEAVING_NS] = time.time_ns()
    if _file is None:
        return
    try:
        # The file stays open until the process ends, so the lock stays too.
        descriptor = os.open(_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # No descriptor is left, or the agent and its directory are gone. Then at least no process can find the server.
        _file.with_suffix(".sock").unlink(missing_ok=True)
        return
    _file.unlink(missing_ok=True)
    ends_at = time.monotonic() + MOST_SECONDS
    while not _locked(descriptor) and time.monotonic() < ends_at:
        # Waiting here releases the GIL, which an open question may need.
        time.sleep(_TURN_SECONDS)
    time.sleep(_LAST_SECONDS)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
