"""The files below a directory that are worth keeping."""

import os
from collections.abc import Iterator
from pathlib import Path


def has_files(directory: Path) -> bool:
    """Whether there is any file below it; directories alone do not count."""
    return next(file_names(directory), None) is not None


def file_names(directory: Path) -> Iterator[str]:
    """Names below a directory, sorted. A link to a file counts as the file; a link to a directory is left out."""
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                yield path.relative_to(directory).as_posix()
