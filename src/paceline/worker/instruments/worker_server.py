"""torch's worker server (C++, answers without the GIL) on a UNIX socket of each rank, started without a line on stderr."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import main_thread
from typing import Any

from ...recording.ring import Cell
from .. import gate
from ..instrument import RankInstrument

_ERRORS_ONLY = 2
_TOO_LONG_FOR_A_SOCKET = 104


class WorkerServerStart(RankInstrument):
    """Starts the server once the process is a rank; without its part in the exit nobody would close the server's gate."""

    def ring_opened(self) -> None:
        server = None if "exit" in self.rank.off else start()
        assert self.rank.ring is not None
        self.rank.ring.cells[Cell.WORKER_SERVER] = server is not None
        if server is None:
            self.rank.lacks(self.name)


def start() -> Any | None:
    """Start it at PACELINE_SOCKET_DIR/<pid>.sock, behind a gate; None where this torch has none or the place is not usable.

    The server is never stopped and never freed: its destructor joins a thread, which in a forked child does not exist, and talks
    on stderr. A process whose main thread is at its end starts none, because nobody would close the gate.
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
    with _quiet_log():
        server = make(str(path), -1)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
    return server


@contextmanager
def _quiet_log() -> Iterator[None]:
    # c10's own threshold, for the millisecond that the start takes. Turning fd 2 away instead would lose other threads' lines.
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
    """For a torch that logs through glog: catch fd 2 in memory and hand back every line but the server's own."""
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
