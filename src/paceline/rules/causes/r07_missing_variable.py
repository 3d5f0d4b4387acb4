"""R07: init_process_group found no RANK, WORLD_SIZE, MASTER_ADDR or MASTER_PORT."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "a variable of the rendezvous is not set"
PAGE = """\
A variable of the rendezvous is not set

What it means: The script calls init_process_group without arguments, so torch reads RANK, WORLD_SIZE, MASTER_ADDR and
  MASTER_PORT. One of them is not set: the script was started without a launcher, or a program in between removed the
  variable.
Why it matters: Only the rank without the variable fails. The others wait for it until their timeout.
Deciding evidence: The rank printed "environment variable NAME expected, but not set".
Not to be confused with: R01, where the rank was never started.
What to do: Start the script with `paceline run`. If a shell script or `sudo` starts the Python program, let it pass
  the environment on.
How to inject it: examples/broken/r07_missing_variable.py
Source: torch/distributed/rendezvous.py, _env_rendezvous_handler.
"""


_SAYS = re.compile(r"environment variable (?P<name>\w+) expected, but not set")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit, line in saying(case, _SAYS):
        yield crash(
            case,
            [exit],
            code="R07",
            title=TITLE,
            level=Level.START,
            saw=(
                ended(exit),
                line,
                "paceline gave it to the process: the script or a program in between removed it",
            ),
            next=(
                "start the script with paceline run; if another program starts it, let that program pass the environment on",
                log_command(case, exit.rank),
            ),
        )


RULE = Cause(code="R07", title=TITLE, page=PAGE, find=find, beats=("C01",), sure_by=(Ground.WORDS, Ground.EXIT))
