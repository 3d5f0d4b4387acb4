"""C12: a worker process of the rank's DataLoader was killed or exited, and the rank failed because of it."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, failures, lacks_guard, log_command, matching_line, words_of
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "a DataLoader worker died"
PAGE = """\
A DataLoader worker died

What it means: A signal ended a worker process of this rank's DataLoader, or the worker exited with a code other than
  0. torch notices it in the rank and raises at whatever line the rank is executing.
Why it matters: The traceback shows an innocent line, because SIGCHLD can arrive anywhere. The fault is in the worker.
Deciding evidence: The first rank that failed printed "DataLoader worker (pid N) is killed by signal" or "exited
  unexpectedly".
Not to be confused with: C02, where the memory control group counted a kill at that time; C08, where a bus error ends
  the worker because shared memory is full; C01, where `__getitem__` itself raised and torch passes its traceback on.
What to do: If the worker was killed, look for the kernel's OOM killer (`dmesg`, the memory limit) and use fewer
  workers. After "Segmentation fault" or "Aborted", suspect a native library in `__getitem__`, such as an image or
  video decoder. num_workers=0 shows where it crashes; multiprocessing_context="spawn" often avoids it.
How to inject it: examples/broken/c12_loader_worker.py
Source: torch/utils/data/_utils/signal_handling.py; torch/csrc/DataLoader.cpp.
"""

_DIED = re.compile(
    r"DataLoader worker \(pid(\(s\))? [\d, ]+\) (is killed by signal: (?P<signal>[^.]+)|exited unexpectedly)"
)
_WHAT_ENDS = {
    "Killed": "SIGKILL ended it: most often the kernel sends it when memory runs out (dmesg, the memory limit); use fewer workers",
    "Terminated": "SIGTERM ended it: a scheduler sends it, or a script that cleans up after itself",
}
_NATIVE = "native code crashed in the worker: num_workers=0 shows where, under python -X faulthandler"


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in failures(case):
        line = matching_line(words_of(case, exit), _DIED)
        died = _DIED.search(line)
        # C01 says of such a script why its workers end.
        if died and not lacks_guard(case, exit):
            yield _finding(case, exit, line, (died["signal"] or "").strip())


def _finding(case: Case, exit: RankExit, line: str, signal: str) -> CauseFinding:
    advice = _WHAT_ENDS.get(signal, _NATIVE if signal else "read the last output of the worker itself")
    return crash(
        case,
        [exit],
        code="C12",
        title=TITLE,
        saw=(ended(exit), line),
        ruled_out=("the line that raised: torch reports a dead worker at whatever line the rank executes",),
        next=(advice, log_command(case, exit.rank)),
    )


RULE = Cause(code="C12", title=TITLE, page=PAGE, find=find, beats=("C01",), sure_by=(Ground.EXIT, Ground.WORDS))
