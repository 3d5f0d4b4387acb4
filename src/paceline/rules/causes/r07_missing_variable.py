"""R07: init_process_group found no RANK, WORLD_SIZE, MASTER_ADDR or MASTER_PORT."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding

TITLE = "a variable of the rendezvous is not set"
PAGE = """\
A variable of the rendezvous is not set

What it means: The script calls init_process_group without arguments, so it reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
  and one is not set: the script was started without a launcher, or something took the variable away.
Why it matters: Only the rank without it fails; the others wait for it until their timeout.
Deciding evidence: "environment variable NAME expected, but not set" in the rank's own words.
Not to be confused with: R01, where the rank was never started.
What to do: Start the script with `paceline run`; where a shell script or `sudo` stands in between, let it hand the environment
  on.
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
                "paceline gave it to the process: the script or something in between took it away",
            ),
            next=(
                "start the script with paceline run, and hand the environment on where another program starts it",
                log_command(case, exit.rank),
            ),
        )


RULE = Cause(code="R07", title=TITLE, page=PAGE, find=find, beats=("C01",))
