"""Starts torch's worker server (C++, answers without the GIL) on a UNIX socket in each rank, without a line on stderr."""

import _thread
import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import main_thread
from typing import Any

from ...recording.ring import Cell
from .. import gate
from ..instrument import RankInstrument

_CLONE_FILES = 0x400
_ERRORS_ONLY = 2
_TOO_LONG_FOR_A_SOCKET = 104


class WorkerServerStart(RankInstrument):
    """Starts the server when the process has become a rank. It needs the exit instrument, which closes the server's gate."""

    def ring_opened(self) -> None:
        # A rank that trains with TensorFlow has no such server, and must not load torch for it.
        if "torch" not in sys.modules:
            return
        server = None if "exit" in self.rank.off else start()
        assert self.rank.ring is not None
        self.rank.ring.cells[Cell.WORKER_SERVER] = server is not None
        if server is None:
            self.rank.lacks(self.name)


def start() -> Any | None:
    """Start the server at PACELINE_SOCKET_DIR/<pid>.sock, behind a gate. None if this torch has no server or the socket cannot be created.

    The server is never stopped and never freed: its destructor joins a thread, which does not exist in a forked child, and writes
    to stderr. A process whose main thread has ended starts no server, because nothing would close the gate.
    """
    from torch._C import _distributed_c10d as c10d

    directory = os.environ.get("PACELINE_SOCKET_DIR")
    make = getattr(c10d, "_WorkerServer", None)
    if directory is None or make is None or not main_thread().is_alive():
        return None
    path = Path(directory) / f"{os.getpid()}.sock"
    if len(os.fsencode(path)) > _TOO_LONG_FOR_A_SOCKET:
        return None
    path.unlink(missing_ok=True)
    gate.make(path.with_suffix(".gate"))
    made: list[Any] = []
    done = _thread.allocate_lock()
    done.acquire()
    # A thread of this kind is in no list of threads, and no tracer of the script's sees it.
    _thread.start_new_thread(_make_apart, (partial(make, str(path), -1), made, done))
    done.acquire()
    (server,) = made
    if isinstance(server, Exception):
        raise server
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
    return server


def _make_apart(make: Callable[[], Any], made: list[Any], done: Any) -> None:
    """Make the server in a thread that has a table of descriptors of its own, as all threads that it starts have.

    A script may close descriptors that it did not open, and the server closes its own by their numbers. Where a sandbox refuses such a
    table, the server's descriptors are in that of the process. `made` gets the server, or what was raised.
    """
    collects = gc.isenabled()
    # A file of the script's that is freed in this thread would be closed in the wrong table.
    gc.disable()
    try:
        if ctypes.CDLL(None).unshare(_CLONE_FILES) == 0:
            _forget_descriptors()
            made.append(make())
        else:
            with _quiet_log():
                made.append(make())
    except Exception as error:
        made.append(error)
    finally:
        if collects:
            gc.enable()
        done.release()


def _forget_descriptors() -> None:
    """Close all descriptors in this thread's table, where they would keep pipes open. What C++ prints goes nowhere."""
    numbers = [int(name) for name in os.listdir("/proc/thread-self/fd")]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    for number in {nowhere, *numbers} - {0, 1, 2}:
        # The listing's own is closed already.
        with suppress(OSError):
            os.close(number)


@contextmanager
def _quiet_log() -> Iterator[None]:
    # This sets c10's own log threshold for the millisecond of the start. Redirecting fd 2 instead would lose lines of other threads.
    try:
        level = _log_level()
    except (OSError, ValueError, AttributeError):
        level = None
    if level is None:
        with _without_warning_lines():
            yield
        return
    before = level.value
    level.value = max(before, _ERRORS_ONLY)
    try:
        yield
    finally:
        level.value = before


def _log_level() -> "ctypes.c_int":
    import torch

    c10 = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    return ctypes.c_int.in_dll(c10, "FLAGS_caffe2_log_level")


@contextmanager
def _without_warning_lines() -> Iterator[None]:
    """For a torch that logs through glog: redirect fd 2 to memory and write back every line except the server's own."""
    caught, stderr = os.memfd_create("paceline"), os.dup(2)
    os.dup2(caught, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.lseek(caught, 0, os.SEEK_SET)
        lines = os.read(caught, 1 << 20).splitlines(keepends=True)
        os.write(2, b"".join(line for line in lines if b"WorkerServer" not in line))
        os.close(caught)
        os.close(stderr)
