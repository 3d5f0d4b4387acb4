"""What torchrun's last block and its signals say, and with which codes other launchers say that a process ended. Pure.

No launcher's root cause is believed by itself.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.diagnosis.case import Level
from paceline.diagnosis.logs.lines import Log, RankLine
from paceline.findings import CauseFinding, Confidence

_FAILURE = re.compile(r"\brank\s*: (\d+) \(local_rank: \d+\)\s*\n[^\n]*exitcode\s*: (-?\d+) \(pid: (\d+)\)")
_ROOT = re.compile(r"Root Cause \(first observed failure\):")
_FORCED = re.compile(r"Unable to shutdown process (\d+) via \S+, forcefully exiting via")
_CLOSED = re.compile(r"Sending process (\d+) closing signal")
# How launchers say that a process ended with an error.
# Sources: torch/distributed/elastic/multiprocessing/api.py; torch/multiprocessing/spawn.py; deepspeed/launcher/launch.py; Slurm, srun;
# Open MPI, orterun; docker compose; kubectl describe; sagemaker-training-toolkit; CPython, subprocess.py
_ENDINGS = (
    re.compile(r"failed \(exitcode: (?P<code>-?\d{1,4})\) local_rank: (?P<local>\d{1,6}) "),
    re.compile(r"process (?P<rank>\d{1,6}) terminated with exit code (?P<code>\d{1,4})"),
    re.compile(r"(?:--local_rank=(?P<local>\d{1,6})'[^\n]{0,400})?exits with return code = (?P<code>-?\d{1,4})"),
    re.compile(r"srun: error: \S{1,80}: tasks? (?P<rank>\d{1,6})[\d,-]{0,40}: Exited with exit code (?P<code>\d{1,4})"),
    re.compile(r"process rank (?P<rank>\d{1,6}) [^\n]{0,80}exited with (?:status|code) (?P<code>\d{1,4})"),
    re.compile(r"Process name: \[\[\d+,\d+\],(?P<rank>\d{1,6})\]\s+Exit code: {1,8}(?P<code>\d{1,4})"),
    re.compile(r"\bexited with code (?P<code>\d{1,4})\b"),
    re.compile(r"\bExit ?[Cc]ode:? {1,8}\"?(?P<code>\d{1,4})\b"),
    re.compile(r"returned non-zero exit status (?P<code>\d{1,4})\b"),
)
# Lines that launchers write around it.
_OF_LAUNCHERS = re.compile(
    r"^[=-]{5,}|^\s*(?:\[\d+\]:|time|host|rank|exitcode|error_file|traceback) {0,6}:|torch[./]distributed|elastic|launch\.py|"
    r"multiprocessing|^srun: |^slurmstepd: |^(?:mpirun|prterun|orterun)\b|^Traceback |^  File |^    \S|^\S+(?:Error|Exception)\b:? ?|"
    r"\bFAILED$|^Failures:|^Root Cause|sagemaker|^Command \""
)
_MOST_LAST_LINES, _LOOKED_BACK = 4, 200


@dataclass(frozen=True, slots=True)
class LoggedEnding:
    """One process that ended with an error, as a launcher says."""

    code: int
    """Its exit code."""
    rank: int | None
    """Its rank; None: not said."""
    line: RankLine
    """The launcher's line."""
    last_lines: tuple[RankLine, ...]
    """What the process, or where lines are not marked somebody, wrote last before it."""


def first_ending(logs: Sequence[Log], blame: "Blame") -> LoggedEnding | None:
    """The first process that ended with a code that is not 0; None: nobody says so."""
    for log in logs:
        found = [match for pattern in _ENDINGS for match in pattern.finditer(log.text) if int(match["code"])]
        if found:
            match = min(found, key=lambda match: match.start())
            named = match.groupdict()
            line = log.line_at(match.start())
            rank = next((rank for rank, code in blame.codes.items() if code == int(match["code"])), None)
            rank = int(named["rank"]) if named.get("rank") else rank
            return LoggedEnding(int(match["code"]), rank, line, _last_lines(log, line.number, rank))
    return None


def _last_lines(log: Log, before: int, rank: int | None) -> tuple[RankLine, ...]:
    lines = [log.line(number) for number in range(max(before - _LOOKED_BACK, 1), before)]
    kept = [line for line in lines if line.text.strip() and not _OF_LAUNCHERS.search(line.text)]
    own = [line for line in kept if line.rank == rank] if rank is not None else []
    return tuple((own or kept)[-_MOST_LAST_LINES:])


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
