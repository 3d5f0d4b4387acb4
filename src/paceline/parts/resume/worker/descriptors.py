"""Numbers of open files in the script's variables, as in `log = os.open(path, os.O_WRONLY)`.

In a new process the script opens the same file again, and the system gives it another number if a socket or a thread was faster. Such a
variable must not get its kept value back, which leads to another file there, or to none.
"""

from __future__ import annotations

import os

_NOT_THE_SCRIPTS = ("/memfd:", "/dev/", "/proc/", "/sys/")


class OpenFiles:
    """The open files of this process."""

    def __init__(self) -> None:
        self._numbers: list[str] = []
        self._names: dict[int, str] = {}

    def names(self) -> dict[int, str]:
        """Number -> path of each open file. They are looked at again where there are other numbers than the last time."""
        try:
            numbers = os.listdir("/proc/self/fd")
        except OSError:
            return {}
        if numbers != self._numbers:
            names = {int(number): name_of(int(number)) for number in numbers}
            self._numbers, self._names = numbers, {number: name for number, name in names.items() if name}
        return self._names


def name_of(number: int) -> str:
    """The path of the file with this number; empty: it is that of no file, or of none of the script's."""
    try:
        name = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""
    return name if name.startswith("/") and not name.startswith(_NOT_THE_SCRIPTS) else ""
