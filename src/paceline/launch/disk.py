"""What a disk refuses, in four parts."""

from collections.abc import Iterator
from contextlib import contextmanager

from paceline.errors import UsageError


@contextmanager
def refused_by_disk(what: str, next_step: str) -> Iterator[None]:
    """Turn a disk's refusal into an error that says which directory and why.

    Raises:  UsageError U22: no room, no permission, a read-only file system
    """
    try:
        yield
    except OSError as error:
        saw = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        raise UsageError("U22", f"{what} cannot be written", saw=saw, next=next_step) from error
