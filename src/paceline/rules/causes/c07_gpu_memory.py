"""C07: the device's memory was not enough for this rank."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "out of GPU memory on one rank"
PAGE = """\
Out of GPU memory on one rank

What it means: torch could not get memory on the rank's device. If other ranks had room, this rank holds more than
  they do: longer sequences, a larger batch, or a second process on its device.
Why it matters: One rank that lacks memory ends the whole job. The other ranks only report that it is gone.
Deciding evidence: The rank's own output contains torch.OutOfMemoryError.
Not to be confused with: C02, where the host's memory ran out and nothing is printed.
What to do: Use a smaller batch, batches balanced by length, gradient accumulation or activation checkpointing.
  PYTORCH_ALLOC_CONF=expandable_segments:True helps against fragmentation.
How to inject it: raise torch.OutOfMemoryError on one rank (no device is needed); judged on such evidence only.
Source: torch.cuda memory management notes.
"""


_SAYS = re.compile(r"OutOfMemoryError|CUDA out of memory|HIP out of memory|CUDA error: out of memory")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit, line in saying(case, _SAYS):
        yield crash(
            case,
            [exit],
            code="C07",
            title=TITLE,
            saw=(ended(exit), line),
            next=(
                "use a smaller batch on this rank, or balance the lengths between ranks",
                log_command(case, exit.rank),
            ),
        )


RULE = Cause(
    code="C07", title=TITLE, page=PAGE, find=find, beats=("C01",), preview=True, sure_by=(Ground.EXIT, Ground.WORDS)
)
