"""R04: another process listens where rank 0 wants to."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, ended, saying, steps_of
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "the port of the rendezvous is in use"
PAGE = """\
The port of the rendezvous is in use

What it means: Rank 0 opens the port of the rendezvous for the other ranks, but another process already listens there:
  a leftover of an old job, or another job on the same host.
Why it matters: Rank 0 fails. The other ranks wait, or join the store of another job.
Deciding evidence: torch's own socket reported EADDRINUSE. If the script printed it instead, it may be about another
  port. If paceline chooses the port itself and it is in use, paceline refuses with U04 before anything starts.
Not to be confused with: R06, where two processes of the same job ask for one rank.
What to do: `ss -ltnp` names the process that listens. End it, or use another port.
How to inject it: examples/broken/r04_port_in_use.py
Source: bind(2), EADDRINUSE.
"""


_SAYS = re.compile(r"EADDRINUSE|address already in use|Errno 98\b", re.IGNORECASE)
_PORT = re.compile(r"port: ?(?P<port>\d+)")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit, line in saying(case, _SAYS):
        torchs = "EADDRINUSE" in line
        if not torchs and steps_of(case, exit.rank):
            # The rank had joined the others, so it listens on another port.
            continue
        yield crash(
            case,
            [exit],
            code="R04",
            title=TITLE,
            level=Level.START,
            confidence=Confidence.HIGH if torchs else Confidence.LIKELY,
            saw=(ended(exit), line, *_holder(exit, line)),
            next=(
                f"see who listens: ss -ltnp {_filter(line)}".rstrip(),
                "leave MASTER_PORT as paceline sets it, or take another one with --master-port",
            ),
        )


def _holder(exit: RankExit, line: str) -> tuple[str, ...]:
    """Which process held the port when the rank failed, if its host saw it; else only the port."""
    match = _PORT.search(line)
    if match is None:
        return ()
    return (exit.note,) if exit.note.startswith(f"port {match['port']}: ") else (f"the port is {match['port']}",)


def _filter(line: str) -> str:
    match = _PORT.search(line)
    return f"'sport = :{match['port']}'" if match is not None else ""


RULE = Cause(
    code="R04",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("C01",),
    sure_by=(Ground.WORDS, Ground.EXIT, Ground.SNAPSHOT, Ground.EVENTS),
)
