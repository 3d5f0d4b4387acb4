"""C05: a rank's native code caused a segmentation fault, an abort or a similar signal."""

import re
import signal
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, ended_by, failures, log_command, matching_line, tail_of
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "crash in native code"
PAGE = """\
Crash in native code

What it means: SIGSEGV, SIGABRT, SIGBUS, SIGFPE or SIGILL ended the process. Native code (torch, an extension, a
  driver library) did something that the processor, or a check in that code, does not allow. Python had no chance to
  raise an exception.
Why it matters: There is no Python traceback. The only message is "Connection closed" from the other ranks.
Deciding evidence: The signal, and one of two texts at the end of the rank's stderr: faulthandler's trace, or the line
  that native code printed before it aborted.
Not to be confused with: M02, where gloo aborts because ranks exchange different sizes; C08, where a full /dev/shm
  gives SIGBUS; C02 (SIGKILL).
What to do: Start the job with PYTHONFAULTHANDLER=1 to see the Python line. Compare the versions of torch, CUDA and
  extensions between hosts.
How to inject it: examples/broken/c05_segfault.py
Source: signal(7); Python's faulthandler.
"""


_SIGNALS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_NATIVE_WORDS = re.compile(
    r"what\(\):|terminate called|EnforceNotMet|enforce fail|Assertion .*failed|free\(\): |malloc|double free|Fatal Python error",
    re.I,
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)', re.MULTILINE)


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in failures(case):
        if ended_by(exit, *_SIGNALS) and exit.error is None:
            yield _finding(case, exit)


def _finding(case: Case, exit: RankExit) -> CauseFinding:
    tail = tail_of(case, exit.rank)
    words = matching_line(tail, _NATIVE_WORDS)
    frame = _python_line(tail)
    return crash(
        case,
        [exit],
        code="C05",
        title=TITLE,
        confidence=Confidence.HIGH,
        saw=(
            ended(exit),
            f"it printed: {words}" if words else "",
            f"Python was at {frame}" if frame else "",
            exit.note,
        ),
        ruled_out=("a kill from outside or by the OOM killer: those send SIGKILL or SIGTERM",),
        next=(
            ""
            if frame
            else f"start the job again with PYTHONFAULTHANDLER=1; the end of the log then names the Python line of rank {exit.rank}",
            log_command(case, exit.rank),
        ),
    )


def _python_line(tail: str) -> str:
    """The innermost frame of the thread that crashed, as faulthandler printed it."""
    _, crashed, trace = tail.rpartition("Fatal Python error")
    _, current, trace = trace.partition("Current thread")
    match = _FRAME.search(trace) if crashed and current else None
    return f"{match['file']}:{match['line']} in {match['function']}" if match else ""


RULE = Cause(code="C05", title=TITLE, page=PAGE, find=find, sure_by=(Ground.EXIT, Ground.WORDS))
