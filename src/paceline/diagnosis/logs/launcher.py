"""What torchrun's last block and its signals say. It is never believed by itself. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.diagnosis.case import Level
from paceline.diagnosis.logs.lines import Log
from paceline.findings import CauseFinding, Confidence

_FAILURE = re.compile(r"\brank\s*: (\d+) \(local_rank: \d+\)\s*\n[^\n]*exitcode\s*: (-?\d+) \(pid: (\d+)\)")
_ROOT = re.compile(r"Root Cause \(first observed failure\):")
_FORCED = re.compile(r"Unable to shutdown process (\d+) via \S+, forcefully exiting via")
_CLOSED = re.compile(r"Sending process (\d+) closing signal")


@dataclass(frozen=True, slots=True)
class Blame:
    """What torchrun's closing blocks report."""

    roots: tuple[int, ...]
    """Ranks that torchrun calls the root cause."""
    codes: dict[int, int]
    """Rank -> exit code."""
    pids: dict[int, int]
    """Rank -> process id."""
    own_kills: frozenset[int]
    """Process ids that torchrun ended itself."""
    stubborn: frozenset[int]
    """Process ids that did not react to SIGTERM."""


def read_blame(logs: Sequence[Log]) -> Blame:
    """Exit codes, pids and root causes of torchrun's closing blocks."""
    roots: list[int] = []
    codes: dict[int, int] = {}
    pids: dict[int, int] = {}
    forced: set[int] = set()
    closed: set[int] = set()
    for log in logs:
        for match in _FAILURE.finditer(log.text) if "(local_rank: " in log.text else ():
            codes[int(match[1])] = int(match[2])
            pids[int(match[1])] = int(match[3])
        for root in _ROOT.finditer(log.text):
            named = _FAILURE.search(log.text, root.end())
            if named is not None and int(named[1]) not in roots:
                roots.append(int(named[1]))
        forced |= {int(pid) for pid in _FORCED.findall(log.text)}
        closed |= {int(pid) for pid in _CLOSED.findall(log.text)}
    return Blame(tuple(roots), codes, pids, frozenset(forced | closed), frozenset(forced))


def stubborn(blame: Blame, logs: Sequence[Log]) -> list[CauseFinding]:
    """A rank that did not even react to SIGTERM: stopped, frozen, or in a system call that cannot be interrupted."""
    found = []
    for pid in sorted(blame.stubborn):
        ranks = tuple(rank for rank, other in blame.pids.items() if other == pid)
        line = next(
            log.line_at(match.start()) for log in logs for match in _FORCED.finditer(log.text) if int(match[1]) == pid
        )
        found.append(
            CauseFinding(
                code="N02",
                title="a rank did not react to SIGTERM: stopped, frozen, or in uninterruptible sleep",
                level=Level.STALL,
                ranks=ranks,
                confidence=Confidence.UNCLEAR,
                saw=(line.shown(), "torchrun ended it with SIGKILL itself; that signal is no cause"),
                next=(
                    "grep State /proc/PID/status while it hangs: T is stopped (kill -CONT PID), D waits for a disk or a mount",
                ),
            )
        )
    return found
