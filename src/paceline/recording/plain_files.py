"""Opens files that another user may have created: never waits for a pipe or a device, and writes through no link. Standard library only."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

# What is read back is its user's alone to change, whatever the umask.
OTHERS_READ, OTHERS_LIST = 0o644, 0o755
_WRITE = os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_plain(path: Path) -> BinaryIO:
    """An ordinary file, opened for reading.

    Raises:  OSError: there is none that may be read, or it is a pipe, a device or a directory
    """
    return os.fdopen(_ordinary(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb")


def read_plain(path: Path, most_bytes: int = -1) -> bytes:
    """The content of an ordinary file, at most its first `most_bytes`.

    Raises:  OSError: as open_plain
    """
    with open_plain(path) as file:
        return file.read(most_bytes)


def write_plain(path: Path, flags: int) -> int:
    """The descriptor of an ordinary file in a recording, which is made if there is none. `flags`: as of os.open.

    Raises:  OSError: it cannot be written, or a link, a pipe, a device or a directory has its name
    """
    return _ordinary(path, flags | _WRITE)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, in which no other user may make or replace a file.

    Raises:  OSError: it cannot be made
    """
    try:
        path.mkdir(OTHERS_LIST, exist_ok=True)
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(OTHERS_LIST, exist_ok=True)


def _ordinary(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags, OTHERS_READ)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not an ordinary file", str(path))
