"""C02: the kernel killed a rank because its memory control group was full."""

import re
import signal
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, ended_by, failures, log_command, matching_line, tail_of
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.spelling import plural

TITLE = "killed at its memory limit"
PAGE = """\
Killed at its memory limit

What it means: The memory control group of the rank (the limit of a container, of Slurm or of Kubernetes) was full.
  The kernel's OOM killer ended the rank, or one of its DataLoader workers, with SIGKILL. The killed process prints
  nothing.
Why it matters: A bare "exit code -9" looks like a kill from outside, but here only less memory or a higher limit
  helps.
Deciding evidence: The rank ended with SIGKILL. In the same second the group's count oom_kill rose (memory.events, or
  memory.oom_control), or the kernel printed "Memory cgroup out of memory: Killed process PID" with the rank's pid.
Not to be confused with: C04, where no counter moved; C03, where the whole host ran out of memory.
What to do: Lower the batch size or the number of DataLoader workers, or raise the limit. Each worker holds its own
  copy of what the dataset touches.
How to inject it: examples/broken/c02_memory_limit.py (needs root)
Source: Linux Documentation/admin-guide/cgroup-v2.rst, memory.events; paceline/probes/sigkill_source.py.
"""


_GROUP_FULL = re.compile(r"its memory control group (was full|counted)")
_OTHERS = re.compile(r"the host ran out of memory")
_WORKER_KILLED = re.compile(r"DataLoader worker .*killed by signal: Killed|DataLoader worker .*exited unexpectedly")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in failures(case):
        worker = matching_line(tail_of(case, exit.rank), _WORKER_KILLED)
        if ended_by(exit, signal.SIGKILL) and not _OTHERS.search(exit.note) and _says_oom(exit.note):
            yield _finding(case, exit, exit.note, _surety(exit.note))
        elif worker and (kills := oom_kills(case, exit.host)):
            note = f"its control group counted {kills} {plural(kills, 'kill')} by the kernel's OOM killer meanwhile"
            yield _finding(case, exit, f"{worker}; {note}", Confidence.HIGH)


def oom_kills(case: Case, host: str) -> int:
    """Number of kills that the host's telemetry saw in its memory control group; 0 also if it could not look."""
    counts = [
        count
        for line in case.telemetry.get(host, ())
        if isinstance(count := (line.get("cgroup") or {}).get("oom_kill_count"), int)
    ]
    return counts[-1] - counts[0] if counts else 0


def _says_oom(note: str) -> bool:
    return bool(_GROUP_FULL.search(note)) or note.startswith("likely the kernel's OOM killer")


def _surety(note: str) -> Confidence:
    if note.startswith("unclear"):
        return Confidence.UNCLEAR
    return Confidence.LIKELY if note.startswith("likely") else Confidence.HIGH


def _finding(case: Case, exit: RankExit, seen: str, confidence: Confidence) -> CauseFinding:
    return crash(
        case,
        [exit],
        code="C02",
        title=TITLE,
        confidence=confidence,
        saw=(ended(exit), seen, _held(case, exit)),
        ruled_out=("a kill from outside: the kernel's counter or log names its OOM killer",),
        next=(
            "lower the batch size or the DataLoader's num_workers, or raise the memory limit of the job",
            log_command(case, exit.rank),
        ),
    )


def _held(case: Case, exit: RankExit) -> str:
    for line in reversed(case.telemetry.get(exit.host, ())):
        used = (line.get("ranks") or {}).get(str(exit.rank))
        # A dying process still exists after it has freed its memory, so a sample of it does not tell what it held.
        if isinstance(used, dict) and isinstance(used.get("resident_bytes"), int) and used["resident_bytes"] > 0:
            processes = used.get("process_count")
            held = f"{used['resident_bytes'] / 2**20:,.0f} MiB"
            return f"it held {held} in {processes} process{'es' if processes != 1 else ''} at its last sample"
    return ""


RULE = Cause(
    code="C02", title=TITLE, page=PAGE, find=find, beats=("C01", "C04", "C12"), sure_by=(Ground.EXIT, Ground.WORDS)
)
