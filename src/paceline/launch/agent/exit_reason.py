"""Finds why a worker ended: the exit code that the script meant, the exception that ended it, and the process that killed it."""

import asyncio
import json
import os
import re
import signal
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from paceline.diagnosis.crash.root_cause import SAVED_AND_LEFT, SAVED_AND_LEFT_CODE, signal_name
from paceline.facts import RankError
from paceline.launch.agent.output import AttemptOutput, Pump
from paceline.launch.agent.ring_collector import Leaving
from paceline.launch.agent.workers import WorkerEnd
from paceline.launch.job.outcome import OWN_CODES
from paceline.probes.cgroup import OomCounters, control_group, oom_counters
from paceline.probes.kernel_log import read_kernel_lines
from paceline.probes.ports import holder_of
from paceline.probes.sigkill_source import who_killed

# Enough for a native stack or the last message of a library. The complete file is in the recording.
_TAIL_CHARACTERS = 4000
_LONGEST_LINE = 4000

# The C++ runtime and the C library print these texts if Python ends a native thread that requests the GIL while the interpreter finalizes.
_ABORTED_IN_SHUTDOWN = {
    "terminate called without an active exception": (
        "; a thread of native code wanted Python's lock while Python finalized: PyTorch's gloo threads do, "
        "where they let go of their last exchange that late"
    ),
    "FATAL: exception not rethrown": (
        "; a thread of PyTorch wanted Python's lock while Python finalized: 'FATAL: exception not rethrown' is PyTorch's own "
        "and comes after the script's work"
    ),
}

_PORT_IN_USE = re.compile(r"port: ?(?P<port>\d{1,5})\b[^\n]{0,200}(?:EADDRINUSE|address already in use)", re.IGNORECASE)

HIDDEN = "the program that started it ended with 0 in spite of it"

_MOST_BYTES = 1 << 20
# The limit of a rank's own error file, and what a host may say of an exception.
_LONGEST_MESSAGE = 4096
_GREATEST_LINE = 1 << 31

_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")


def last_exception(text: str, time_ns: int) -> RankError | None:
    """The last Python traceback in the text, with its last frame outside the standard library and installed packages.

    Holds:  no traceback in the text -> None
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


def error_of(
    error_dir: Path, pid: int, other_workers: set[int], rank: int, printed: str, time_ns: int
) -> RankError | None:
    """The exception that ended worker `pid`, from its error file, a child's error file, torch's `@record` file, or its output.

    A child (an mp.spawn rank below the worker) has an error file too. It counts if it belongs to no other worker. The earliest file wins.
    """
    own = _read(error_dir / f"{pid}.json")
    children = [_read(file) for file in error_dir.glob("*.json") if _pid_of(file) not in {None, pid, *other_workers}]
    found = sorted((record for record in children if record), key=lambda record: int(record["time_ns"]))
    if found and (own is None or own["type"] in {"ProcessRaisedException", "ProcessExitedException"}):
        return _as_error(found[0])
    if own is not None:
        return _as_error(own)
    recorded = _torchelastic(error_dir / f"torchelastic_{rank}.json", time_ns)
    said = recorded or last_exception(printed, time_ns) or _abort_line(printed, time_ns)
    return None if said is None else _bounded(said)


def reported_error(error_dir: Path, pid: int) -> RankError | None:
    """The exception that ends process `pid`, from its own error file, which it writes before it shuts down; None: there is none."""
    own = _read(error_dir / f"{pid}.json")
    return None if own is None else _as_error(own)


def _pid_of(file: Path) -> int | None:
    return int(file.stem) if file.stem.isdigit() else None


def _read(file: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(_text_of(file))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or "type" not in record:
        return None
    time_ns = record.get("time_ns")
    return record if isinstance(time_ns, int) and 0 <= time_ns < 1 << 63 else None


def _text_of(file: Path) -> str:
    """The text of a file that a rank left, up to a limit.

    Raises:  OSError: the file cannot be read, or is not a regular file
    """
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(f"{file} is no plain file")
        return opened.read(_MOST_BYTES).decode(errors="replace")


def _as_error(record: dict[str, Any]) -> RankError:
    """The exception of an error file."""

    def text(name: str) -> str | None:
        value = record.get(name)
        return value if isinstance(value, str) else None

    line = record.get("line")
    error = RankError(
        type=str(record["type"]),
        message=text("message") or "",
        time_ns=record["time_ns"],
        file=text("file"),
        line=line if isinstance(line, int) else None,
        function=text("function"),
        source=text("source"),
        python=text("python"),
    )
    return _bounded(error)


def _bounded(error: RankError) -> RankError:
    """The exception as every agent accepts it. A rank says what it likes: a line without end, or a file name that is no UTF-8."""
    texts = {name: value for name, value in asdict(error).items() if isinstance(value, str)}
    sent: dict[str, Any] = {
        name: value[:_LONGEST_MESSAGE].encode(errors="replace").decode() for name, value in texts.items()
    }
    line = error.line if error.line is not None and 0 <= error.line < _GREATEST_LINE else None
    return replace(error, **sent, line=line)


def _torchelastic(file: Path, time_ns: int) -> RankError | None:
    """The file of torch's `@record`: {"message": {"message": "Type: text", "extraInfo": {"py_callstack": ...}}}."""
    try:
        message = json.loads(_text_of(file))["message"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(message, dict):
        return RankError(type="Error", message=str(message), time_ns=time_ns)
    extra = message.get("extraInfo")
    found = last_exception(str(extra.get("py_callstack", "")), time_ns) if isinstance(extra, dict) else None
    type_, _, text = str(message.get("message", "")).partition(": ")
    return found or RankError(type=type_ or "Error", message=text, time_ns=time_ns)


def _abort_line(printed: str, time_ns: int) -> RankError | None:
    """The line that the C++ runtime prints for an uncaught exception, which has no Python frame."""
    found = re.search(
        r"terminate called after throwing an instance of '(.{1,400}?)'\n\s{0,40}what\(\):\s{0,40}(.*)", printed
    )
    return RankError(type=found[1], message=found[2], time_ns=time_ns) if found else None


@dataclass(frozen=True, slots=True)
class Ending:
    """What is reported of one worker's end."""

    code: int
    """The worker's exit code as the job counts it, or minus a signal's number."""
    error: RankError | None = None
    """The exception that ended the worker; None: no exception is known."""
    note: str = ""
    """What else is known about the reason, for people."""
    tail: str = ""
    """The end of the worker's stderr if it failed by itself; empty otherwise."""
    done_ns: int | None = None
    """When the worker's program was done, in Unix ns, if its interpreter did not complete the shutdown afterwards; None otherwise."""
    signalled_by_us: bool = False
    """The agent signalled the worker before it was done by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitContext:
    """The sources from which the reason of a worker's end is read."""

    pump: Pump | AttemptOutput
    """Keeps the end of the worker's output."""
    errors: Path
    """The directory in which ranks write the exceptions that ended them."""
    said: Leaving | None
    """What the rank reported when its program was done; None: the program was not done, or the process was no rank."""
    others: frozenset[int]
    """Process ids of the other workers, and of the other ranks below them."""
    below: frozenset[int] = frozenset()
    """Process ids of the processes below the worker that were its rank, such as the Python that a shell script starts."""
    oom_before: OomCounters | None
    """Out-of-memory kills counted before the attempt; None: they were not counted."""
    began: float
    """When this host began the attempt, in monotonic seconds. The kernel's log is read from this time on."""
    state_mismatch: bool = False
    """The worker stopped itself because what it found is not the state that was kept."""
    not_put_back: bool = False
    """The worker ended itself because its kept state could not be put back."""
    told_to_save: bool = False
    """The job was stopped, and TensorFlow in the worker took the signal as a notice to save."""


async def why_ended(end: WorkerEnd, around: ExitContext) -> Ending:
    """The end of the worker as the job counts it.

    Raises:  OSError, ValueError: a file from which the reason is read cannot be read or parsed
    """
    code, note = _meant(end, around.said)
    done_ns = around.said.since_ns if around.said is not None and note else None
    error, tail = None, ""
    # A worker that exits with a positive code after our signal had failed by itself before, and its output says how.
    if code > 0 or (code < 0 and not end.signalled_by_us):
        await asyncio.to_thread(around.pump.catch_up, end.spec.rank)
        tail = clipped(around.pump.tail(end.spec.rank, "err"))
        # In a thread: a rank decides how much it prints and writes, and the other ranks must be supervised while it is read.
        error = await asyncio.to_thread(
            error_of, around.errors, end.pid, set(around.others), end.spec.rank, tail, end.time_ns
        )
    if code == 0 and not end.signalled_by_us and around.below:
        error = await asyncio.to_thread(_hidden_error, around.errors, around.below)
        note = HIDDEN if error is not None else note
    if code == -signal.SIGKILL and not end.signalled_by_us and not end.overdue and around.oom_before is not None:
        after = oom_counters(control_group("memory"))
        log = await asyncio.to_thread(read_kernel_lines, around.began)
        note = who_killed(end.pid, around.oom_before, after, log.lines)
    if around.said is not None and code == -signal.SIGABRT:
        note += next((by for text, by in _ABORTED_IN_SHUTDOWN.items() if text in tail), "")
    if in_use := _PORT_IN_USE.search(tail):
        # Read this now: the process that holds the port may end before a person reads the message.
        holder = await asyncio.to_thread(holder_of, int(in_use["port"]))
        note = note or ("" if holder is None else f"port {in_use['port']}: {holder}")
    if code in OWN_CODES and not (around.state_mismatch or around.not_put_back):
        note = (
            f"the script's own code {code} is reported as 1, because {OWN_CODES[0]} to {OWN_CODES[-1]} are paceline's"
        )
    if code == SAVED_AND_LEFT_CODE and around.told_to_save:
        note = SAVED_AND_LEFT
    return Ending(code, error, note, tail[-_TAIL_CHARACTERS:], done_ns, _was_cut_off(end, error, around.said))


def _hidden_error(error_dir: Path, below: frozenset[int]) -> RankError | None:
    """The first exception of the processes that were the rank; None if one of them has raised none: it may have made good another."""
    found = [_read(error_dir / f"{pid}.json") for pid in below]
    known = [record for record in found if record is not None]
    return _as_error(min(known, key=lambda record: int(record["time_ns"]))) if len(known) == len(found) else None


def clipped(text: str) -> str:
    """The text without the middle of its long lines: a progress bar or a dump without line ends would make the patterns slow."""
    half = _LONGEST_LINE // 2
    lines = text.split("\n")
    return "\n".join(line if len(line) <= _LONGEST_LINE else f"{line[:half]} ... {line[-half:]}" for line in lines)


def _was_cut_off(end: WorkerEnd, error: RankError | None, said: Leaving | None) -> bool:
    """Whether our signal came before the rank had raised its exception or reached the end of its program.

    An interpreter needs time to exit. Ranks that lose each other at the same time end in any order, and the first end makes the agent
    signal the others.
    """
    own_end_ns = [stamp for stamp in (error and error.time_ns, said and said.since_ns) if stamp]
    return end.signalled_by_us and not any(stamp < end.signalled_ns for stamp in own_end_ns)


def _meant(end: WorkerEnd, said: Leaving | None) -> tuple[int, str]:
    """The exit code that counts, and a note. It is the process's own code, unless we ended the process after its script was done.

    A process that crashes in its shutdown counts as crashed: its destructors may not have written all their data.
    """
    if said is None or end.code >= 0:
        return end.code, ""
    done = "its program was done" if said.meant_code is None else f"its program was done with code {said.meant_code}"
    ended = f"{done}; the interpreter's shutdown was ended by {signal_name(-end.code)}"
    if not end.overdue and not end.signalled_by_us:
        return end.code, f"{ended}, and what comes after exit handlers (destructors, finalizers) was cut off"
    how = f"{done}; the interpreter's shutdown hung and was cut off" if end.overdue else ended
    if said.meant_code is None:
        return end.code, f"{how}; the code it meant is not known"
    return said.meant_code, how
