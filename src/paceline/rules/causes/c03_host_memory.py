"""C03: the kernel killed a rank because the whole host had no memory left."""

import re
import signal
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, ended_by, failures, log_command
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "the host ran out of memory"
PAGE = """\
The host ran out of memory

What it means: The whole host, not one control group, had no memory left. The kernel chose a rank and ended it with
  SIGKILL. Another job on the same host may have used the memory.
Why it matters: Raising the job's own limit does not help. The processes on the host must use less memory, or the host
  must have more.
Deciding evidence: The kernel printed "Out of memory: Killed process PID" without a control group, or oom_kill of
  /proc/vmstat rose while the group's own count did not.
Not to be confused with: C02, whose control group counted the kill; C04, where no counter moved.
What to do: Look for other programs on the host. Use fewer ranks or DataLoader workers per host, a smaller batch, or a
  larger machine.
How to inject it: not injected for real, because it would endanger the host; judged on recorded evidence only.
Source: Linux mm/oom_kill.c; paceline/probes/sigkill_source.py.
"""


_HOST_FULL = re.compile(
    r"the host ran out of memory|on this host meanwhile, none of them counted in this control group"
)


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in failures(case):
        if ended_by(exit, signal.SIGKILL) and _HOST_FULL.search(exit.note):
            confidence = Confidence.UNCLEAR if exit.note.startswith("unclear") else Confidence.HIGH
            yield crash(
                case,
                [exit],
                code="C03",
                title=TITLE,
                confidence=confidence,
                saw=(ended(exit), exit.note),
                next=(
                    f"see what else uses memory on {exit.host}: ps aux --sort=-rss | head",
                    log_command(case, exit.rank),
                ),
            )


RULE = Cause(
    code="C03", title=TITLE, page=PAGE, find=find, beats=("C04",), preview=True, sure_by=(Ground.EXIT, Ground.WORDS)
)
