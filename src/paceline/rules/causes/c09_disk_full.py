"""C09: the script wrote a file, and the disk had no room."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, failures, log_command, matching_line, place_of, words_of
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "no space left on a disk"
PAGE = """\
No space left on a disk

What it means: The script could not write a checkpoint, a log or a temporary file. The volume is full, its inodes are
  used up, or a quota is reached.
Why it matters: It often happens at a checkpoint, after hours, and may leave half a file behind.
Deciding evidence: The first rank that failed printed "[Errno 28] No space left on device", "Disk quota exceeded", or
  torch.save's "PytorchStreamWriter failed writing". If paceline could look at the volumes, their free space is shown.
Not to be confused with: C08, where the file lies in shared memory.
What to do: Run `df -h` and `df -i` on the volume of the file that the traceback names. Free room there, or write
  somewhere else.
How to inject it: examples/broken/c09_disk_full.py (needs root)
Source: errno(3), ENOSPC and EDQUOT.
"""


_FULL = re.compile(
    r"No space left on device|Errno 28\b|Disk quota exceeded|PytorchStreamWriter failed writing|unexpected pos \d+ vs|iostream error",
    re.IGNORECASE,
)
_HALF_WRITTEN = re.compile(r"PytorchStreamWriter failed|unexpected pos|iostream error", re.IGNORECASE)
_OF_A_FILE = re.compile(r"Disk quota exceeded|No space left on device: \S|: '[^']+'$")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in failures(case):
        line = matching_line(words_of(case, exit), _FULL)
        if line:
            yield _finding(case, exit, line)


def _finding(case: Case, exit: RankExit, line: str) -> CauseFinding:
    snapshot = case.host_snapshots.get(exit.host)
    full = [
        one
        for one in (snapshot.filesystems if snapshot is not None else ())
        if one.free_bytes == 0 or one.free_inodes == 0
    ]
    where = place_of(exit)
    half_written = _HALF_WRITTEN.search(line)
    return crash(
        case,
        [exit],
        code="C09",
        title=TITLE,
        # torch prints the same if a write failed for another reason. Without a file name it may have been shared memory.
        confidence=Confidence.HIGH if full or (_OF_A_FILE.search(line) and not half_written) else Confidence.LIKELY,
        saw=(
            ended(exit),
            line,
            f"at {where}" if where else "",
            *(f"{one.path} on {exit.host} has no {'room' if one.free_bytes == 0 else 'inodes'} left" for one in full),
        ),
        next=(
            f"df -h and df -i on {exit.host}, for the volume of the file that is written"
            + (f" at {where}" if where else ""),
            log_command(case, exit.rank),
        ),
    )


RULE = Cause(code="C09", title=TITLE, page=PAGE, find=find, beats=("C01",), sure_by=(Ground.EXIT, Ground.WORDS))
