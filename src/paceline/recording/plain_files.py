"""Opens files that another user may have created: never waits for a pipe or a device. Standard library only."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_plain(path: Path) -> BinaryIO:
    """An ordinary file, opened for reading.

    Raises:  OSError: there is none that may be read, or it is a pipe, a device or a directory
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not an ordinary file", str(path))


def read_plain(path: Path, most_bytes: int = -1) -> bytes:
    """The content of an ordinary file, at most its first `most_bytes`.

    Raises:  OSError: as open_plain
    """
    with open_plain(path) as file:
        return file.read(most_bytes)
