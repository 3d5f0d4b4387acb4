"""R08: NCCL refuses two ranks on the same device."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding

TITLE = "two ranks on one GPU"
PAGE = """\
Two ranks on one GPU

What it means: Two ranks of one host chose the same GPU, most often because the script does not take it from LOCAL_RANK.
Why it matters: NCCL refuses it; with other back ends the two halve their speed and share one memory.
Deciding evidence: "Duplicate GPU detected" in the ranks' own words.
Not to be confused with: C07, where the device's memory is full.
What to do: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before init_process_group.
How to inject it: two NCCL ranks on one GPU; judged on recorded evidence only.
Source: NCCL init.cc, "Duplicate GPU detected".
"""


_SAYS = re.compile(r"Duplicate GPU detected")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit, line in saying(case, _SAYS):
        yield crash(
            case,
            [exit],
            code="R08",
            title=TITLE,
            level=Level.START,
            saw=(ended(exit), line),
            next=(
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group",
                log_command(case, exit.rank),
            ),
        )


RULE = Cause(code="R08", title=TITLE, page=PAGE, find=find, beats=("C01",), preview=True)
