"""C10: the rank reached its limit of open files."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.ends import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding

TITLE = "too many open files"
PAGE = """\
Too many open files

What it means: The process has as many files, sockets and shared tensors open as its limit allows (RLIMIT_NOFILE).
Why it matters: DataLoader workers hand tensors over as open files; the limit is reached only after a while, and the text names
  a socket.
Deciding evidence: EMFILE, "Too many open files" or "received 0 items of ancdata" in the rank's own words.
Not to be confused with: C08, where shared memory is full.
What to do: `ulimit -n 65536` before the start, or torch.multiprocessing.set_sharing_strategy("file_system").
How to inject it: start with a low `ulimit -n` and many DataLoader workers; judged on recorded evidence only.
Source: getrlimit(2); torch.multiprocessing, "Sharing strategies".
"""


_SAYS = re.compile(r"Too many open files|Errno 24\b|received 0 items of ancdata")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit, line in saying(case, _SAYS):
        yield crash(
            case,
            [exit],
            code="C10",
            title=TITLE,
            saw=(ended(exit), line),
            next=(
                "ulimit -n 65536 before the start, or torch.multiprocessing.set_sharing_strategy('file_system')",
                log_command(case, exit.rank),
            ),
        )


RULE = Cause(code="C10", title=TITLE, page=PAGE, find=find, beats=("C01",), preview=True)
