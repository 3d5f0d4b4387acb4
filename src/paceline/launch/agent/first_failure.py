"""Why a worker ended: its error file, what it printed, and who killed it. Reads files of this host only."""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from paceline.facts import RankError
from paceline.launch.agent.traceback_text import last_exception

_MOST_BYTES = 1 << 20
# As much as a rank's own error file has; another host's agent takes no text without end.
_LONGEST_MESSAGE = 4096


def error_of(
    error_dir: Path, pid: int, other_workers: set[int], rank: int, printed: str, time_ns: int
) -> RankError | None:
    """The exception that ended worker `pid`: from its own error file, a child's, torch's `@record` file, or its output.

    A child's file (an mp.spawn rank below the worker) counts when it belongs to no other worker; the earliest one leads.
    """
    own = _read(error_dir / f"{pid}.json")
    children = [_read(file) for file in error_dir.glob("*.json") if _pid_of(file) not in {None, pid, *other_workers}]
    found = sorted((record for record in children if record), key=lambda record: int(record["time_ns"]))
    if found and (own is None or own["type"] in {"ProcessRaisedException", "ProcessExitedException"}):
        return _as_error(found[0])
    if own is not None:
        return _as_error(own)
    recorded = _torchelastic(error_dir / f"torchelastic_{rank}.json", time_ns)
    return recorded or last_exception(printed, time_ns) or _abort_line(printed, time_ns)


def _pid_of(file: Path) -> int | None:
    return int(file.stem) if file.stem.isdigit() else None


def _read(file: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(_text_of(file))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "type" in record and "time_ns" in record else None


def _text_of(file: Path) -> str:
    """A file that a rank left, read only where it is one, and no further than anybody wants to read."""
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(f"{file} is no plain file")
        return opened.read(_MOST_BYTES).decode(errors="replace")


def _as_error(record: dict[str, Any]) -> RankError:
    return RankError(
        type=str(record["type"]),
        message=str(record.get("message") or ""),
        time_ns=int(record["time_ns"]),
        file=record.get("file"),
        line=record.get("line"),
        function=record.get("function"),
        source=record.get("source"),
        python=record.get("python"),
    )


def _torchelastic(file: Path, time_ns: int) -> RankError | None:
    """The file of torch's `@record`: {"message": {"message": "Type: text", "extraInfo": {"py_callstack": ...}}}."""
    try:
        message = json.loads(_text_of(file))["message"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(message, dict):
        return RankError(type="Error", message=str(message)[:_LONGEST_MESSAGE], time_ns=time_ns)
    extra = message.get("extraInfo")
    found = last_exception(str(extra.get("py_callstack", "")), time_ns) if isinstance(extra, dict) else None
    type_, _, text = str(message.get("message", "")).partition(": ")
    return found or RankError(type=type_ or "Error", message=text[:_LONGEST_MESSAGE], time_ns=time_ns)


def _abort_line(printed: str, time_ns: int) -> RankError | None:
    """The line with which C++ ends a process that no Python frame saw."""
    found = re.search(
        r"terminate called after throwing an instance of '(.{1,400}?)'\n\s{0,40}what\(\):\s{0,40}(.*)", printed
    )
    return RankError(type=found[1], message=found[2], time_ns=time_ns) if found else None
