"""Python and native stacks of a process: py-spy from outside, without stopping it; torch's own traceback if that is refused."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OURS = str(Path(__file__).resolve().parents[1]) + "/"
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+t?/|/lib/python3/|/python3\.\d+\.zip/")
_THREAD = re.compile(
    r"^(?:Current thread|Thread) 0x(?P<ident>[0-9a-fA-F]+)(?: \[(?P<name>.*)\])? \(most recent call first\):"
)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.+)$')
MOST_FRAMES, _MOST_NATIVE = 64, 24
REFUSED = "ptrace is refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame of a Python stack."""

    file: str
    """Path as Python has it."""
    line: int
    """Line in that file, counted from 1; 0: not known."""
    function: str
    """Name of the function."""
    users: bool = False
    """It is the user's own code, not that of the standard library, an installed package or paceline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread's Python frames."""

    pid: int
    """The process: the rank or one below it."""
    thread: str
    """Python's name of the thread."""
    main: bool
    """It is the main thread."""
    frames: tuple[Frame, ...]
    """Innermost first."""
    active: bool = False
    """It was on a CPU at the snapshot."""
    owns_gil: bool | None = None
    """None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDump:
    """The stacks of one process at one moment."""

    threads: tuple[ThreadStack, ...] | None = None
    """Threads with their frames; None: they could not be read."""
    native: tuple[str, ...] = ()
    """Functions of the main thread, innermost first, down to its first Python frame."""
    reason: str = ""
    """Why they could not be read."""

    @property
    def main(self) -> ThreadStack | None:
        return next((thread for thread in self.threads or () if thread.main), None)


def is_users_file(path: str) -> bool:
    """Whether a file is the user's own code: not of the standard library, an installed package or paceline.

    Holds:  is_users_file("/home/you/train.py"); not is_users_file("/usr/lib/python3.11/socket.py")
    """
    is_compiled = path.endswith((".pyx", ".pxd", ".pxi"))
    return bool(path) and not path.startswith(("<", _OURS)) and not is_compiled and not _INSTALLED.search(path)


def parse_dump(text: str, pid: int) -> tuple[ThreadStack, ...]:
    """The threads of `py-spy dump --json`, native frames left out.

    Raises:  ValueError: it is no such dump
    """
    threads = (
        ThreadStack(
            pid=pid,
            thread=str(thread.get("thread_name") or ""),
            main=thread.get("os_thread_id") == pid or thread.get("thread_name") == "MainThread",
            frames=tuple(_frame(frame) for frame in _frames(thread) if not _is_native(frame))[:MOST_FRAMES],
            active=thread.get("active") is True,
            owns_gil=thread.get("owns_gil") is True,
        )
        for thread in _threads(text)
    )
    # A library thread that called into Python once has no frames of its own.
    return tuple(thread for thread in threads if thread.frames)


def parse_native(text: str, pid: int) -> tuple[str, ...]:
    """Functions of the main thread in `py-spy dump --json --native`, innermost first, up to and with the first Python frame."""
    for thread in _threads(text):
        if thread.get("os_thread_id") == pid:
            names: list[str] = []
            for frame in _frames(thread)[:_MOST_NATIVE]:
                names.append(f"{frame.get('name')} ({frame.get('short_filename') or frame.get('filename')})")
                if not _is_native(frame):
                    break
            return tuple(names)
    return ()


def parse_faulthandler(text: str, pid: int) -> tuple[ThreadStack, ...]:
    """The threads of a faulthandler traceback; it lists the main thread last and names none before Python 3.14."""
    found: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            found.append((thread["name"] or f"thread 0x{thread['ident'].lstrip('0')}", []))
        elif found and (frame := _FRAME.match(line)):
            number = int(frame["line"]) if frame["line"].isdigit() else 0
            found[-1][1].append(_frame_of(frame["file"], number, frame["function"]))
    return tuple(
        ThreadStack(
            pid=pid,
            thread="MainThread" if place == len(found) - 1 else name,
            main=place == len(found) - 1,
            frames=tuple(frames[:MOST_FRAMES]),
        )
        for place, (name, frames) in enumerate(found)
        if frames
    )


def py_spy_program() -> str | None:
    """Path of py-spy: beside this interpreter, as pip installs it, or on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def dump(pid: int, *, timeout_seconds: float, native: bool = False, program: str | None = None) -> StackDump:
    """The stacks of a process now. `native` stops the process while it is read, for up to a second."""
    program = program or py_spy_program()
    if program is None:
        return StackDump(reason="py-spy is not installed: pip install py-spy")
    words = [program, "dump", "--json", "--native" if native else "--nonblocking", "--pid", str(pid)]
    done = _output(words, timeout_seconds)
    if isinstance(done, str):
        return StackDump(reason=done)
    code, out, err = done
    if code != 0:
        return StackDump(reason=refusal(err))
    try:
        return StackDump(threads=parse_dump(out, pid), native=parse_native(out, pid) if native else ())
    except ValueError as error:
        return StackDump(reason=f"py-spy wrote what cannot be read: {error}")


def read_locals(
    pid: int, function: str, file: str, names: Collection[str], *, timeout_seconds: float
) -> dict[str, str] | None:
    """Local variables of a function that is on a stack of the process, as py-spy writes them.

    Empty: it is on no stack; None: they cannot be read. `file`: the end of its path. Other variables than `names` are not kept.
    """
    program = py_spy_program()
    if program is None:
        return None
    done = _output([program, "dump", "--json", "--locals", "--nonblocking", "--pid", str(pid)], timeout_seconds)
    if isinstance(done, str) or done[0] != 0:
        return None
    try:
        return locals_in(done[1], function, file, names)
    except (ValueError, RecursionError):
        return None


def locals_in(text: str, function: str, file: str, names: Collection[str]) -> dict[str, str]:
    """The same from what py-spy wrote.

    Raises:  ValueError: it is no such dump
    """
    for frame in (frame for thread in _threads(text) for frame in _frames(thread)):
        if _frame(frame).function == function and str(frame.get("filename")).endswith(file):
            values = frame.get("locals")
            told = [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
            return {str(one.get("name")): str(one.get("repr")) for one in told if one.get("name") in names}
    return {}


def refusal(stderr: str) -> str:
    """Why py-spy gave no stacks, in one line; if permissions are missing, with the setting that allows it.

    Holds:  missing rights give a text that begins with REFUSED
    """
    text = " ".join(stderr.partition("Stack backtrace:")[0].split())
    if "ermission" in text or "not permitted" in text:
        return (
            f"{REFUSED}: give the agent CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE), or, on a machine of your own, "
            "sysctl kernel.yama.ptrace_scope=0"
        )
    return f"py-spy: {text[:200] or 'no reason given'}"


def _output(words: Sequence[str], timeout_seconds: float) -> tuple[int, str, str] | str:
    try:
        # A list of words and no shell; it gets nothing of ours on its standard input.
        done = subprocess.run(
            words, capture_output=True, timeout=timeout_seconds, check=False, stdin=subprocess.DEVNULL, text=True
        )
    except subprocess.TimeoutExpired:
        return f"py-spy did not answer within {timeout_seconds:.1f} s"
    except OSError as error:
        return f"py-spy cannot be started: {error.strerror}"
    return done.returncode, done.stdout, done.stderr


def _threads(text: str) -> list[dict[str, Any]]:
    threads = json.loads(text)
    if not isinstance(threads, list):
        raise ValueError("not a list of threads")
    return [thread for thread in threads if isinstance(thread, dict)]


def _frames(thread: dict[str, Any]) -> list[dict[str, Any]]:
    frames = thread.get("frames")
    return [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []


def _frame(frame: dict[str, Any]) -> Frame:
    # Its names are qualified from Python 3.11 on; a traceback's, a ring's and those of older Pythons are not.
    name, line = str(frame.get("name") or "").rpartition(".")[2], frame.get("line")
    return _frame_of(str(frame.get("filename") or ""), line if isinstance(line, int) else 0, name)


def _frame_of(file: str, line: int, function: str) -> Frame:
    return Frame(file=file, line=line, function=function, users=is_users_file(file))


def _is_native(frame: dict[str, Any]) -> bool:
    # py-spy gives a native frame its library as the module, a Python frame none.
    return frame.get("module") is not None
