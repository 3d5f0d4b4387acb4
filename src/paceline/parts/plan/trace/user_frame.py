"""The source of a call: the user's own file and line among the frames of libraries."""

import linecache
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

_OURS = str(Path(__file__).parent)
_LIBRARIES = tuple(
    {path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))}
)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source line. `library`: the nearest file below the user's line that made the call; "" if the line itself made it."""

    file: str
    line: int
    text: str
    library: str = ""


def is_users(file: str) -> bool:
    """Whether `file` belongs neither to paceline nor to a library, so that a user can edit it."""
    if file.startswith((_OURS, "<")):
        return False
    return "site-packages" not in file and "dist-packages" not in file and not file.startswith(_LIBRARIES)


def here() -> SourceLine | None:
    """The user's line that is executing, at any depth inside libraries; None outside the user's code."""
    frame: FrameType | None = sys._getframe(1)
    library = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            # Between two lines, where a handler of a signal may be called, a frame has none.
            line = frame.f_lineno or frame.f_code.co_firstlineno
            return SourceLine(file, line, linecache.getline(file, line).strip(), library)
        if not library and not file.startswith(_OURS) and "/torch/" not in file and "site-packages" in file:
            library = f"{file.partition('site-packages/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def of_traceback(start: TracebackType | None) -> SourceLine | None:
    """The innermost line of the user's in a traceback; None where there is none."""
    found = None
    for entry in traceback.extract_tb(start):
        if is_users(entry.filename):
            found = SourceLine(entry.filename, entry.lineno or 0, entry.line or "")
    return found
