"""C14: a host or its agent is gone."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.findings import Cause, CauseFinding, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "a host was lost"
PAGE = """\
A host was lost

What it means: The first host lost the connection to the agent of another host: that agent or its machine ended, was
  cut off, or did not answer for 10 seconds.
Why it matters: The ranks of that host are gone, and those of the others cannot finish a step without them. A job of a
  fixed number of hosts ends with 200.
Deciding evidence: The event `host_lost`, with how the connection ended.
Not to be confused with: a signal at that agent, which stops the job in order; C04 (one rank was killed, its agent says so).
What to do: Look at that machine: is it up, was it taken back, was its agent killed for memory (`dmesg`)? To go on without it:
  `--nnodes MIN:MAX --max-restarts 1` and a script that loads its checkpoint.
How to inject it: kill -9 the agent of the second of two hosts, or pull its cable.
Source: paceline/launch/job/framed_connection.py.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    """The hosts that the newest attempt lost."""
    lost: dict[str, str] = {}
    for event in case.events:
        if event.get("event") == "attempt_started":
            lost = {}
        elif event.get("event") == "host_lost" and isinstance(event.get("host"), str):
            lost[event["host"]] = str(event.get("reason") or "")
    for host, reason in lost.items():
        ranks = tuple(sorted(rank for rank, record in case.ranks.items() if record.host == host))
        yield CauseFinding(
            code="C14",
            title=TITLE,
            level=Level.CRASH,
            ranks=ranks,
            hosts=(host,),
            saw=(f"{host}: {reason}", *((f"its part of the job: {named_ranks(ranks)}",) if ranks else ())),
            next=tuple(_next(case, host)),
        )


def _next(case: Case, host: str) -> Iterator[str]:
    yield f"look at {host}: is it up, and what do its `dmesg` and the end of its paceline's output say?"
    wanted = case.run.hosts_wanted
    if wanted is not None and wanted[0] == wanted[1] > 1:
        yield f"to go on without a lost host: --nnodes {wanted[1] - 1}:{wanted[1]} --max-restarts 1, and load a checkpoint at the start"


RULE = Cause(code="C14", title=TITLE, page=PAGE, find=find, sure_by=(Ground.EVENTS,))
