"""Reads the exception that ended a rank out of what the rank printed, for processes that left no error file."""

import re
from pathlib import Path

from paceline.facts import RankError

_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")


def last_exception(text: str, time_ns: int) -> RankError | None:
    """The last Python traceback in the text, with its last frame outside the standard library and installed packages.

    Holds: no traceback in the text -> None
    """
    start = text.rfind(_START)
    if start < 0:
        return None
    frames: list[tuple[str, int, str | None, str | None]] = []
    lines = text[start:].splitlines()[1:]
    for number, line in enumerate(lines):
        if found := _FRAME.match(line):
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            source = None if _FRAME.match(following) else following or None
            frames.append((found["file"], int(found["line"]), found["function"], source))
        elif line and not line[0].isspace() and (ended := _EXCEPTION.match(line)):
            return _error(ended["type"], ended["message"] or "", time_ns, frames)
    return None


def _error(type_: str, message: str, time_ns: int, frames: list[tuple[str, int, str | None, str | None]]) -> RankError:
    users = [frame for frame in frames if not _is_installed(frame[0])] or frames
    file, line, function, source = users[-1] if users else (None, None, None, None)
    return RankError(
        type=type_.rpartition(".")[2],
        message=message,
        time_ns=time_ns,
        file=file,
        line=line,
        function=function,
        source=source,
    )


def _is_installed(file: str) -> bool:
    parts = Path(file).parts
    if file.startswith("<") or "site-packages" in parts or "dist-packages" in parts:
        return True
    return any(re.fullmatch(r"python3\.\d+", part) for part in parts[:-1])
