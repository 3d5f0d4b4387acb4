"""What NCCL's watchdog and torchrun's last block say, compared between ranks. Neither is believed by itself. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.diagnosis.case import Level
from paceline.diagnosis.log_lines import Line, Log
from paceline.findings import CauseFinding, Confidence

_WATCHDOG = re.compile(r"Watchdog caught collective operation timeout: WorkNCCL\((?P<fields>[^)]*(?:\)[^)]*)?)\)")
_FIELD = re.compile(r"(\w+)(?:\(ms\))?=(\w+)")
_COUNTS = re.compile(r"last enqueued NCCL work: (?P<enqueued>-?\d+), last completed NCCL work: (?P<completed>-?\d+)")
_FAILURE = re.compile(r"\brank\s*: (\d+) \(local_rank: \d+\)\s*\n[^\n]*exitcode\s*: (-?\d+) \(pid: (\d+)\)")
_ROOT = re.compile(r"Root Cause \(first observed failure\):")
_FORCED = re.compile(r"Unable to shutdown process (\d+) via \S+, forcefully exiting via")
_CLOSED = re.compile(r"Sending process (\d+) closing signal")
# Fewer calls than this before a one-element collective: nobody has trained yet.
_EARLY = 50


@dataclass(frozen=True, slots=True)
class Timeout:
    """One rank's watchdog: the collective that it waited in."""

    line: Line
    index: int | None
    operation: str
    elements: int | None


@dataclass(frozen=True, slots=True)
class Blame:
    """What torchrun's closing blocks say. `roots`: ranks that it calls the root cause. `own_kills`: pids that it ended itself."""

    roots: tuple[int, ...]
    codes: dict[int, int]
    pids: dict[int, int]
    own_kills: frozenset[int]
    stubborn: frozenset[int]


def timeouts(logs: Sequence[Log]) -> list[Timeout]:
    """Every watchdog line, in order."""
    found = []
    for log in logs:
        for match in _WATCHDOG.finditer(log.text):
            fields = dict(_FIELD.findall(match["fields"]))
            index, elements = fields.get("SeqNum"), fields.get("NumelIn")
            line = log.line_at(match.start())
            found.append(
                Timeout(
                    line,
                    int(index) if index and index.isdigit() else None,
                    fields.get("OpType", ""),
                    int(elements) if elements and elements.isdigit() else None,
                )
            )
    return found


def from_watchdogs(logs: Sequence[Log]) -> list[CauseFinding]:
    """What the watchdogs of several ranks say together: who is behind, who called something else, what kind of call it was."""
    found = timeouts(logs)
    if not found:
        return []
    behind = _behind(logs)
    different = _different(found)
    if different is not None:
        return [different]
    first = found[0]
    one_element = first.elements == 1
    early = first.index is not None and first.index <= _EARLY
    if one_element and early:
        return [
            CauseFinding(
                code="N04",
                title="one rank works alone while the others wait",
                level=Level.WAITING,
                ranks=behind,
                confidence=Confidence.LIKELY,
                saw=(
                    first.line.shown(),
                    f"a collective of one element, the {first.index}th of its group: a barrier before training has begun",
                ),
                next=(
                    "py-spy dump --nonblocking --pid PID, on rank 0 while the others wait: tokenising, downloading, saving",
                    "prepare the data before the job; a longer timeout only hides it",
                ),
            )
        ]
    if behind:
        return [
            CauseFinding(
                code="N01",
                title="some ranks did not come to the collective",
                level=Level.STALL,
                ranks=behind,
                confidence=Confidence.UNCLEAR,
                saw=(first.line.shown(), "these ranks had enqueued fewer collectives than the others"),
                next=("py-spy dump --nonblocking --pid PID, on one of these ranks while it hangs",),
            )
        ]
    return []


def read_blame(logs: Sequence[Log]) -> Blame:
    """Exit codes, pids and root causes of torchrun's closing blocks."""
    roots: list[int] = []
    codes: dict[int, int] = {}
    pids: dict[int, int] = {}
    forced: set[int] = set()
    closed: set[int] = set()
    for log in logs:
        for match in _FAILURE.finditer(log.text):
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


def _behind(logs: Iterable[Log]) -> tuple[int, ...]:
    """Ranks whose watchdog had fewer collectives enqueued than another rank's."""
    enqueued: dict[int, int] = {}
    for log in logs:
        for match in _COUNTS.finditer(log.text):
            line = log.line_at(match.start())
            if line.rank is not None:
                enqueued[line.rank] = int(match["enqueued"])
    most = max(enqueued.values(), default=0)
    return tuple(sorted(rank for rank, count in enqueued.items() if count < most))


def _different(found: Sequence[Timeout]) -> CauseFinding | None:
    """Two ranks that timed out at the same place of the order in different calls."""
    for one in found:
        for other in found:
            if one.index is None or one.index != other.index or one.line.rank == other.line.rank:
                continue
            if one.operation == other.operation and one.elements == other.elements:
                continue
            same = one.operation == other.operation
            ranks = tuple(sorted(rank for rank in (one.line.rank, other.line.rank) if rank is not None))
            return CauseFinding(
                code="M02" if same else "M01",
                title="shapes differ between ranks" if same else "ranks called different collectives",
                level=Level.DIVERGENCE,
                ranks=ranks,
                confidence=Confidence.LIKELY,
                saw=(one.line.shown(), other.line.shown()),
                next=("paceline run ... the same script: it compares every call and shows both call sites",),
            )
    return None
