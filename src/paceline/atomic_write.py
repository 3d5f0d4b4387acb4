"""Writes files atomically: a reader sees the old file, the new file or no file, never half of one. Standard library only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a new file for writing. It gets the name `path` at the end of the block. `mode`: permissions before the umask.

    Holds:   if the block raises, the old file at `path` is unchanged and the new file is removed
    Raises:  OSError: the file cannot be written
    """
    # The random part separates writers on several hosts that share the directory.
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a text atomically, as `atomic_write` does."""
    with atomic_write(path, mode=mode) as file:
        file.write(text.encode())
