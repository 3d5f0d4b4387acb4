"""C12: a worker process of the rank's DataLoader was killed or ended, and took the rank with it."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, failures, log_command, matching_line, words_of
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding

TITLE = "a DataLoader worker died"
PAGE = """\
A DataLoader worker died

What it means: A worker process of this rank's DataLoader was ended by a signal, or left with a code that is not 0. torch finds out in
  the rank, at whatever line the rank happens to be, and raises there.
Why it matters: The traceback shows an innocent line: SIGCHLD comes in the middle of anything. What is wrong is in the worker.
Deciding evidence: "DataLoader worker (pid N) is killed by signal", or "exited unexpectedly", in the words of the first rank that fell.
Not to be confused with: C02, where the memory control group counted a kill meanwhile; C08, where the worker's signal is a bus error for
  want of shared memory; C01, where `__getitem__` itself raised and torch hands its traceback on.
What to do: Killed: look for the kernel's OOM killer (`dmesg`, the memory limit), and use fewer workers. Segmentation fault, Aborted: a
  native library in `__getitem__` (an image or video decoder); run it with num_workers=0 to see it, or multiprocessing_context="spawn".
How to inject it: examples/broken/c12_loader_worker.py
Source: torch/utils/data/_utils/signal_handling.py; torch/csrc/DataLoader.cpp.
"""

_DIED = re.compile(
    r"DataLoader worker \(pid(\(s\))? [\d, ]+\) (is killed by signal: (?P<signal>[^.]+)|exited unexpectedly)"
)
_WHAT_ENDS = {
    "Killed": "somebody sent SIGKILL: most often the kernel, for want of memory (dmesg, the memory limit); use fewer workers",
    "Terminated": "somebody sent SIGTERM: a scheduler, or a script that clears up after itself",
}
_NATIVE = "native code crashed in the worker: num_workers=0 shows where, under python -X faulthandler"


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in failures(case):
        line = matching_line(words_of(case, exit), _DIED)
        died = _DIED.search(line)
        if died:
            yield _finding(case, exit, line, (died["signal"] or "").strip())


def _finding(case: Case, exit: RankExit, line: str, signal: str) -> CauseFinding:
    advice = _WHAT_ENDS.get(signal, _NATIVE if signal else "see what the worker itself said last")
    return crash(
        case,
        [exit],
        code="C12",
        title=TITLE,
        saw=(ended(exit), line),
        ruled_out=("the line that raised: torch tells of its worker wherever the rank happens to be",),
        next=(advice, log_command(case, exit.rank)),
    )


RULE = Cause(code="C12", title=TITLE, page=PAGE, find=find, beats=("C01",))
