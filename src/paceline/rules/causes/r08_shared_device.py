"""R08: NCCL refuses two ranks on the same device."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "two ranks on one GPU"
PAGE = """\
Two ranks on one GPU

What it means: Two ranks of one host chose the same GPU. Most often the script does not choose the GPU by LOCAL_RANK.
Why it matters: NCCL refuses it. With other backends the two ranks run at half speed and share one memory.
Deciding evidence: The ranks printed "Duplicate GPU detected".
Not to be confused with: C07, where the device's memory is full.
What to do: Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before init_process_group.
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
                "call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group",
                log_command(case, exit.rank),
            ),
        )


RULE = Cause(
    code="R08", title=TITLE, page=PAGE, find=find, beats=("C01",), preview=True, sure_by=(Ground.WORDS, Ground.EXIT)
)
