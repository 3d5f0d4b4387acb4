"""Writes what a verb has made to the file that the user named."""

import sys
from pathlib import Path

from paceline.atomic_write import atomic_write
from paceline.errors import UsageError


def write_output(name: str, content: bytes, instead: str, *, is_told: bool = True) -> None:
    """Write a file and print its name; "-" is standard output. A pipe or a device is written to, and a link is followed.

    `instead`: the option with a file that would do, for the error. `is_told`: whether its name is printed.

    Raises:  UsageError U22: the file cannot be written; an old file of this name is unchanged
    """
    if name == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    path = Path(name).resolve()
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            with atomic_write(path) as file:
                file.write(content)
    except OSError as error:
        raise UsageError("U22", f"{name} cannot be written", saw=error.strerror or str(error), next=instead) from error
    if is_told:
        print(name)
