"""C04: a signal ended a rank, and neither paceline nor the kernel's OOM killer sent it."""

import signal
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, ended_by, failures, place_of
from paceline.diagnosis.crash.origins import is_interrupt
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.probes.sigkill_source import NOT_FOR_MEMORY, NOT_JUDGED
from paceline.recording.rank_sets import named_ranks

TITLE = "killed by a signal from outside"
PAGE = """\
Killed by a signal from outside

What it means: SIGKILL, SIGTERM, SIGINT, SIGHUP or SIGQUIT ended a rank. paceline did not send the signal, and no
  memory counter moved. Typical senders are a scheduler that takes the machine back, a person, or a clean-up job; the
  parent process is not told who sent it. In a log without paceline this code also covers a job that ended at the
  platform's time limit.
Why it matters: The script is not at fault. Restarting it is often right: `--max-restarts`.
Deciding evidence: The signal; paceline did not send it; and for SIGKILL the counts of the OOM killer are the same
  before and after. If all ranks of a host end within a second, the host's scheduler is the likely sender.
Not to be confused with: C02 and C03, whose counters move; ranks that paceline itself stopped after another one
  failed.
What to do: Read the scheduler's log for that second. Save checkpoints and start the job with `--max-restarts`.
How to inject it: examples/broken/c04_killed.py
Source: signal(7); Linux memory.events.
"""


_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
TOGETHER_NS = 1_000_000_000


def find(case: Case) -> Iterator[CauseFinding]:
    unknown = []
    by_host: dict[tuple[str, int], list[RankExit]] = {}
    for exit in failures(case):
        if exit.error is not None and is_interrupt(exit.error.type):
            by_host.setdefault((exit.host, -signal.SIGINT), []).append(exit)
            continue
        if not ended_by(exit, *_SIGNALS) or exit.error is not None:
            continue
        killed = ended_by(exit, signal.SIGKILL)
        if killed and not exit.note:
            unknown.append(exit.rank)
        elif not killed or "OOM killer" not in exit.note or exit.note.startswith(("unclear", NOT_FOR_MEMORY)):
            by_host.setdefault((exit.host, exit.code), []).append(exit)
    for exits in by_host.values():
        yield _finding(case, exits)
    if unknown:
        raise Unknown(f"whether a count of the OOM killer moved when {named_ranks(unknown)} was killed")


def _finding(case: Case, exits: list[RankExit]) -> CauseFinding:
    first = exits[0]
    killed = ended_by(first, signal.SIGKILL)
    confidence = Confidence.HIGH if first.error is None else Confidence.LIKELY
    if killed and first.note != NOT_JUDGED:
        confidence = Confidence.UNCLEAR if first.note.startswith("unclear") else Confidence.LIKELY
    whole = _all_of_the_host(case, exits)
    return crash(
        case,
        exits,
        code="C04",
        title=TITLE,
        confidence=confidence,
        saw=(
            ended(first)
            if len(exits) == 1
            else f"{named_ranks(exit.rank for exit in exits)} on {first.host} were ended by the same signal",
            "paceline did not send it"
            + (", and no count of the kernel's OOM killer moved" if first.note == NOT_JUDGED else ""),
            f"it was at {place_of(first)}, which is no fault of that line" if place_of(first) else "",
            f"every rank of {first.host} ended within {_spread_seconds(exits):.1f} s" if whole else "",
        ),
        ruled_out=("out of memory: no counter moved",) if first.note == NOT_JUDGED else (),
        next=(
            f"look into the scheduler's and the system's log of {first.host} at that second: who ended the process?",
            "start the job with --max-restarts 3, and save checkpoints",
        ),
    )


def _all_of_the_host(case: Case, exits: list[RankExit]) -> bool:
    here = {rank for rank, record in case.ranks.items() if record.host == exits[0].host}
    return len(here) > 1 and here == {exit.rank for exit in exits} and _spread_seconds(exits) <= TOGETHER_NS / 1e9


def _spread_seconds(exits: list[RankExit]) -> float:
    times = [exit.time_ns for exit in exits]
    return (max(times) - min(times)) / 1e9


RULE = Cause(code="C04", title=TITLE, page=PAGE, find=find, sure_by=(Ground.EXIT, Ground.WORDS, Ground.EVENTS))
