"""R02: a rank cannot connect to the rendezvous: wrong port, a host that refuses, or a network that drops."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import failures, log_command, matching_line, steps_of, words_of
from paceline.diagnosis.crash.rendezvous import Joined, joined
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "nothing answers at the address of the rendezvous"
PAGE = """\
Nothing answers at the address of the rendezvous

What it means: Ranks meet at MASTER_ADDR:MASTER_PORT, where the ranks' store is, on the first host. This rank could not
  connect there. Either the connection was refused (the host exists, but no process listens on that port), it timed out (a firewall or a
  security group drops it), or there is no route.
Why it matters: torch tries again for half an hour before it reports "client socket has timed out".
Deciding evidence: Rank 0 listens at another address than the one this rank connects to; or a test connection from
  this rank's host, made while the rank waits, was refused, timed out or had no route.
Not to be confused with: R03, where the name is unknown or leads to the wrong host; R01, where rank 0 was never
  started.
What to do: If the connection is refused, check the port and that rank 0 is running. If it times out, open the port in
  the security group or firewall. If there is no route, check the network.
How to inject it: examples/broken/r02_refused.py
Source: connect(2): ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH; torch/csrc/distributed/c10d/socket.cpp.
"""


_TIMED_OUT = re.compile(
    r"client socket has (timed out|failed to connect)|failed to connect to .*(refused|timed out|unreachable)|"
    r"No route to host|Network is unreachable",
    re.IGNORECASE,
)
# Messages of torch's own socket. A script may fail to connect to something else.
_TORCHS = re.compile(r"client socket has|c10d|socket\.cpp", re.IGNORECASE)
_UNREACHED = ("refused", "timed out", "no route", "reset")
_ADVICE = {
    "refused": "nothing listens there: check the port, and that rank 0 has started",
    "timed out": "the network drops the connection: open the port in the firewall or security group",
    "no route": "the hosts' networks are not connected: check the interface and the route",
    "reset": "the process there closes the connection: it is not the ranks' store",
}


def find(case: Case) -> Iterator[CauseFinding]:
    for entry in case.missing_hosts:
        word = _word(str(entry.get("saw", "")))
        if word:
            yield _of_launcher(entry, word)
    found = joined(case)
    first = next((one for one in found if one.rank == 0), None)
    told = set()
    for one in found:
        finding = _of_rank(case, one, first) if not steps_of(case, one.rank) else None
        if finding is not None:
            told.add(one.rank)
            yield finding
    for exit in failures(case):
        line = matching_line(words_of(case, exit), _TIMED_OUT)
        # A rank that has made steps had joined the others, so its message is about another connection.
        if line and exit.rank not in told and not steps_of(case, exit.rank):
            torchs = _TORCHS.search(line) is not None
            yield _finding(case, exit.rank, exit.host, (line,), _word(line) or "timed out", sure=torchs)


def _of_rank(case: Case, one: Joined, first: Joined | None) -> CauseFinding | None:
    snapshot = case.snapshots.get(one.rank)
    word = _word(snapshot.rendezvous_seen or "") if snapshot is not None else ""
    # Rank 0 itself listens there. Before it has started, no process can answer.
    if one.rank == 0 or first is None or one.address is None:
        return None
    other_port = first.address is not None and _port(one.address) != _port(first.address)
    if not other_port and not word:
        return None
    saw = [f"rank {one.rank} ({one}) looks for the others at {one.address}"]
    saw += [f"rank 0 ({first}) meets them at {first.address}"] if other_port else []
    saw += (
        [f"a connection to {one.address} from {one.host}: {snapshot.rendezvous_seen}"]
        if word and snapshot is not None
        else []
    )
    advice = f"every rank must look for the others where rank 0 meets them, at {first.address}" if other_port else ""
    return _finding(case, one.rank, one.host, saw, word or "refused", advice=advice)


def _of_launcher(entry: Mapping[str, Any], word: str) -> CauseFinding:
    host = str(entry.get("host", "?"))
    return CauseFinding(
        code="R02",
        title=TITLE,
        level=Level.START,
        hosts=(host,),
        saw=(f"{host}: {entry['saw']}",),
        next=(_ADVICE[word],),
    )


def _finding(
    case: Case, rank: int, host: str, saw: Sequence[str], word: str, *, sure: bool = True, advice: str = ""
) -> CauseFinding:
    return CauseFinding(
        code="R02",
        title=TITLE,
        level=Level.START,
        ranks=(rank,),
        hosts=(host,),
        confidence=Confidence.HIGH if sure else Confidence.LIKELY,
        saw=tuple(saw),
        next=(
            advice or _ADVICE[word],
            "leave MASTER_ADDR and MASTER_PORT as paceline sets them",
            log_command(case, rank),
        ),
    )


def _word(text: str) -> str:
    return next((word for word in _UNREACHED if word in text.lower()), "")


def _port(address: str) -> str:
    return address.rpartition(":")[2]


RULE = Cause(
    code="R02",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("C01", "R01", "R09"),
    sure_by=(Ground.WORDS, Ground.EXIT, Ground.SNAPSHOT, Ground.EVENTS),
)
