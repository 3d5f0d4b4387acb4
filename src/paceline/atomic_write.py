"""Files that appear whole: a reader sees the old file, the new one or none, never half of one. Standard library only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the name `path` when the block has ended. `mode`: as far as the umask allows.

    Holds:   where the block raises, what was at `path` is still there and the new file is removed
    Raises:  OSError: the disk refused it
    """
    # The random part keeps writers of several hosts apart that share the directory.
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a text at once, as `atomic_write` does."""
    with atomic_write(path, mode=mode) as file:
        file.write(text.encode())
