"""C10: the rank reached its limit of open files."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, failures, log_command, matching_line, words_of
from paceline.diagnosis.crash.shared_memory import Shortage, out_of_files, shortage_line
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "too many open files"
PAGE = """\
Too many open files

What it means: The process has as many open files, sockets and shared tensors as its limit (RLIMIT_NOFILE) allows.
Why it matters: DataLoader workers hand tensors over as open files. The limit is reached only after a while, and the
  message names a socket.
Deciding evidence: The rank printed EMFILE, "Too many open files" or "received 0 items of ancdata". "unable to open
  shared memory object" without a number fits C08 as well; then the number of open files decides.
Not to be confused with: C08, where shared memory is full.
What to do: Run `ulimit -n 65536` before the start, or call torch.multiprocessing.set_sharing_strategy("file_system").
How to inject it: start with a low `ulimit -n` and many DataLoader workers; judged on recorded evidence only.
Source: getrlimit(2); torch.multiprocessing, "Sharing strategies".
"""


_SAYS = re.compile(r"Too many open files|Errno 24\b|received 0 items of ancdata")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in failures(case):
        words = words_of(case, exit)
        shortage, sentence = shortage_line(words)
        line = matching_line(words, _SAYS) or (sentence if shortage is Shortage.EITHER else "")
        if not line:
            continue
        at_its_limit = out_of_files(case, exit.rank)
        yield crash(
            case,
            [exit],
            code="C10",
            title=TITLE,
            confidence=Confidence.HIGH
            if _SAYS.search(line)
            else Confidence.LIKELY
            if at_its_limit
            else Confidence.UNCLEAR,
            saw=(ended(exit), line, at_its_limit),
            next=(
                "run ulimit -n 65536 before the start, or call torch.multiprocessing.set_sharing_strategy('file_system')",
                log_command(case, exit.rank),
            ),
        )


RULE = Cause(
    code="C10", title=TITLE, page=PAGE, find=find, beats=("C01",), preview=True, sure_by=(Ground.EXIT, Ground.WORDS)
)
