"""Writes the exception that ends this process, for the agent: PACELINE_ERROR_DIR/<pid>.json.

The file has what the first three lines of a failure report need: the exception and the user's own frame. The user's own frame is the
last frame outside the standard library and installed packages.
"""

import functools
import json
import linecache
import os
import re
import sys
import sysconfig
import time
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ..atomic_write import write_whole
from . import exit_code

_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_NOT_THE_USERS = tuple(
    os.path.join(os.path.realpath(path), "")
    for path in {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
# Debian's interpreter has packages in places that it does not tell.
_PACKAGES = re.compile(r"/(?:site|dist)-packages/")
_FRAME_LINE = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$')
_written = False


def report(error: BaseException) -> None:
    """Write the error file, once per process, and remove paceline's frames from the traceback that Python prints next.

    Raises:  OSError: the directory cannot be written
    """
    global _written
    hide_our_frames(error)
    if isinstance(error, SystemExit) or _written:
        return
    _written = True
    exit_code.note(130 if isinstance(error, KeyboardInterrupt) else 1)
    directory = os.environ.get("PACELINE_ERROR_DIR")
    if directory:
        write(Path(directory) / f"{os.getpid()}.json", describe(error))


def describe(error: BaseException) -> dict[str, Any]:
    """The facts about an exception that the agent needs, ready for JSON."""
    child = _spawned_child(error)
    frame = child or _syntax_error(error) or _users_frame(error.__traceback__)
    return {
        "type": type(error).__qualname__,
        "message": _message(error)[:4096],
        "time_ns": time.time_ns(),
        "file": None,
        "line": None,
        "function": None,
        "source": None,
        # The missing module is missing in this interpreter.
        "python": sys.executable if isinstance(error, ImportError) else None,
        "rank": _rank(),
        "traceback": "".join(traceback.format_exception(error))[-65536:],
    } | (frame or {})


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # This is the form that Python's own traceback has.
        return "<exception str() failed>"


def write(path: Path, facts: dict[str, Any]) -> None:
    """Write the file atomically, so that the agent never reads half of it."""
    write_whole(path, json.dumps(facts))


def hide_our_frames(error: BaseException) -> None:
    """Unlink the frames of paceline's wrappers from a traceback and from the tracebacks of its causes."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = _without_ours(current.__traceback__)
        current = current.__cause__ or current.__context__


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a frame is in the user's own code, and not in a package, the standard library or paceline."""
    # A compiled module names its source, by a path of the machine on which it was compiled.
    return (
        not filename.startswith("<")
        and not filename.endswith((".pyx", ".pxd", ".pxi"))
        and is_users_directory(os.path.dirname(filename))
    )


@functools.cache
def is_users_directory(directory: str) -> bool:
    """Whether the files of a directory are the user's own. Where links among them lead does not matter: some installers leave links."""
    # A project may be below the prefix of a virtual environment, but not below its packages.
    path = os.path.join(os.path.realpath(directory), "")
    return not path.startswith((_OURS, *_NOT_THE_USERS)) and not _PACKAGES.search(path)


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user, from this one on; None: there is none."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _without_ours(tb: TracebackType | None) -> TracebackType | None:
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_OURS):
        tb = tb.tb_next
    current = tb
    while current is not None:
        while current.tb_next is not None and current.tb_next.tb_frame.f_code.co_filename.startswith(_OURS):
            current.tb_next = current.tb_next.tb_next
        current = current.tb_next
    return tb


def _users_frame(tb: TracebackType | None) -> dict[str, Any] | None:
    frames = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_tb(tb)]
    frames = [frame for frame in frames if is_users(frame[0])] or frames[-1:]
    return _located(*frames[-1]) if frames else None


def _syntax_error(error: BaseException) -> dict[str, Any] | None:
    if not isinstance(error, SyntaxError) or not error.filename or not is_users(error.filename):
        return None
    return _located(error.filename, error.lineno or 0, None)


def _spawned_child(error: BaseException) -> dict[str, Any] | None:
    """The failure of a child. torch.multiprocessing raises the text of the child's traceback, so the cause is in that text."""
    if type(error).__name__ != "ProcessRaisedException":
        return None
    lines = [line for line in str(error).rstrip().splitlines() if line.strip()]
    frames = [found for line in lines if (found := _FRAME_LINE.match(line)) and is_users(found["file"])]
    # A child that failed before the user's code ran, as of arguments that do not fit: the line that made the child.
    own = _located(frames[-1]["file"], int(frames[-1]["line"]), frames[-1]["function"]) if frames else None
    located = own or _users_frame(error.__traceback__) or {}
    name, _, message = (lines[-1] if lines else "").partition(": ")
    if not re.fullmatch(r"[\w.]+", name):
        return located or None
    return located | {"type": name.rpartition(".")[2], "message": message}


def _located(file: str, line: int, function: str | None) -> dict[str, Any]:
    source = linecache.getline(file, line).strip() or None
    return {"file": os.path.realpath(file), "line": line, "function": function, "source": source}


def _rank() -> int | None:
    this_rank = sys.modules.get(f"{__package__}.rank_recorder")
    if this_rank is not None and this_rank.this_rank.number is not None:
        return int(this_rank.this_rank.number)
    value = os.environ.get("RANK", "")
    return int(value) if value.isdigit() else None
