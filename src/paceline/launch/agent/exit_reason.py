"""Why a worker ended: its exit code as the script meant it, the exception that ended it, who killed it."""

import asyncio
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from paceline.diagnosis.crash.root_cause import signal_name
from paceline.facts import RankError
from paceline.launch.agent.first_failure import error_of
from paceline.launch.agent.output import Pump
from paceline.launch.agent.ring_collector import Leaving
from paceline.launch.agent.workers import WorkerEnd
from paceline.probes.cgroup import OomCounters, control_group, oom_counters
from paceline.probes.kernel_log import read_kernel_lines
from paceline.probes.ports import holder_of
from paceline.probes.sigkill_source import who_killed

# Enough for a native stack or the last words of a library; the complete file is in the recording.
_TAIL_CHARACTERS = 4000
_LONGEST_LINE = 4000

# What the C++ runtime prints where Python ends a thread of native code that wants its lock once the interpreter finalizes.
_ABORTED_IN_SHUTDOWN = "terminate called without an active exception"
_BY_A_THREAD = (
    "; a thread of native code wanted Python's lock while Python finalized: PyTorch's gloo threads do, "
    "where they let go of their last exchange that late"
)

_PORT_IN_USE = re.compile(r"port: ?(?P<port>\d{1,5})\b[^\n]{0,200}(?:EADDRINUSE|address already in use)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ending:
    """What is told of one worker's end. `tail`: the end of its stderr, where it ended badly by itself.

    `done_ns`: when its program was done, where its interpreter did not get through the shutdown after it. `signalled_by_us`: we told
    it to end before it was done by itself.
    """

    code: int
    error: RankError | None = None
    note: str = ""
    tail: str = ""
    done_ns: int | None = None
    signalled_by_us: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitContext:
    """What the reason is read from. `said`: the rank's last words; `others`: pids of the other workers; `began`: monotonic seconds."""

    pump: Pump
    errors: Path
    said: Leaving | None
    others: frozenset[int]
    oom_before: OomCounters | None
    began: float


async def why_ended(end: WorkerEnd, around: ExitContext) -> Ending:
    """The end as the job counts it.

    Raises:  OSError, ValueError: one of the files that it is read from is not what it should be
    """
    code, note = _meant(end, around.said)
    done_ns = around.said.since_ns if around.said is not None and note else None
    error, tail = None, ""
    # One that ends with a code of its own after our signal had already failed by itself, and says how.
    if code > 0 or (code < 0 and not end.signalled_by_us):
        await asyncio.to_thread(around.pump.catch_up, end.spec.rank)
        tail = clipped(around.pump.tail(end.spec.rank, "err"))
        # In a thread: what a rank printed and left is its own, and supervision of the others goes on while it is read.
        error = await asyncio.to_thread(
            error_of, around.errors, end.pid, set(around.others), end.spec.rank, tail, end.time_ns
        )
    if code == -signal.SIGKILL and not end.signalled_by_us and not end.overdue and around.oom_before is not None:
        after = oom_counters(control_group("memory"))
        log = await asyncio.to_thread(read_kernel_lines, around.began)
        note = who_killed(end.pid, around.oom_before, after, log.lines)
    if around.said is not None and code == -signal.SIGABRT and _ABORTED_IN_SHUTDOWN in tail:
        note += _BY_A_THREAD
    if in_use := _PORT_IN_USE.search(tail):
        # Now: by the time that somebody reads of it, whoever holds the port may be gone.
        holder = await asyncio.to_thread(holder_of, int(in_use["port"]))
        note = note or ("" if holder is None else f"port {in_use['port']}: {holder}")
    if 200 <= code <= 204:
        note = f"the script's own code {code} is reported as 1, because 200 to 204 are paceline's"
    return Ending(code, error, note, tail[-_TAIL_CHARACTERS:], done_ns, _was_cut_off(end, error, around.said))


def clipped(text: str) -> str:
    """The text without the middle of its long lines: a progress bar or a dump without line ends is not worth a pattern's time."""
    half = _LONGEST_LINE // 2
    lines = text.split("\n")
    return "\n".join(line if len(line) <= _LONGEST_LINE else f"{line[:half]} ... {line[-half:]}" for line in lines)


def _was_cut_off(end: WorkerEnd, error: RankError | None, said: Leaving | None) -> bool:
    """Whether our signal came before the rank had raised its exception or come to its program's end.

    An interpreter takes its time to go. Ranks that lose each other at once end in any order, and the first end has the others signalled.
    """
    own_end_ns = [stamp for stamp in (error and error.time_ns, said and said.since_ns) if stamp]
    return end.signalled_by_us and not any(stamp < end.signalled_ns for stamp in own_end_ns)


def _meant(end: WorkerEnd, said: Leaving | None) -> tuple[int, str]:
    """The exit code that counts: the process's own, but for one that we ended ourselves when its script was done.

    A process that crashes in its shutdown crashed: what its destructors had still to write is not written, whoever's fault it was.
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
