"""C11: the rank could not start another process or thread."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "no more processes or threads allowed"
PAGE = """\
No more processes or threads allowed

What it means: The kernel refused fork or pthread_create. The control group's pids.max or the user's RLIMIT_NPROC is
  reached.
Why it matters: The number of threads and DataLoader workers grows with the number of ranks per host.
Deciding evidence: The rank printed "Resource temporarily unavailable", "can't start new thread" or "pthread_create
  failed".
Not to be confused with: C10, which is about open files.
What to do: Raise pids.max or `ulimit -u`. Use fewer DataLoader workers, and set OMP_NUM_THREADS=1.
How to inject it: a control group with a small pids.max; judged on recorded evidence only.
Source: Linux Documentation/admin-guide/cgroup-v2.rst, pids; pthread_create(3), EAGAIN.
"""


_SAYS = re.compile(
    r"can't start new thread|Resource temporarily unavailable|pthread_create\w* failed|Thread creation failed|Errno 11\b"
)
_OF_THREADS = re.compile(r"thread|fork|pthread", re.IGNORECASE)


def find(case: Case) -> Iterator[CauseFinding]:
    for exit, line in saying(case, _SAYS):
        yield crash(
            case,
            [exit],
            code="C11",
            title=TITLE,
            # About files and sockets the same text means that another process uses them at the moment.
            confidence=Confidence.HIGH if _OF_THREADS.search(line) else Confidence.LIKELY,
            saw=(ended(exit), line),
            next=(
                "raise pids.max of the control group or ulimit -u, or start fewer DataLoader workers and threads",
                log_command(case, exit.rank),
            ),
        )


RULE = Cause(
    code="C11", title=TITLE, page=PAGE, find=find, beats=("C01",), preview=True, sure_by=(Ground.EXIT, Ground.WORDS)
)
