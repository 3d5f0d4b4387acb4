"""R03: MASTER_ADDR is a name that this host cannot look up, or one that leads to another host than rank 0's."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import failures, log_command, matching_line, steps_of, tail_of, words_of
from paceline.diagnosis.crash.rendezvous import Joined, joined
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "the name of the rendezvous is unknown or wrong"
PAGE = """\
The name of the rendezvous is unknown or wrong

What it means: The host of this rank cannot resolve the name in MASTER_ADDR, or resolves it to a wrong address: its
  own loopback (127.0.1.1 from /etc/hosts), an old address, or an IPv6 address where no process listens.
Why it matters: torch repeats the lookup for half an hour. With a wrong address the rank waits for itself.
Deciding evidence: The rank printed "cannot be retrieved (gai error ...)" or "Name or service not known" while it
  waited; or a lookup made on its host failed; or the address is a loopback address and the host is not that of rank
  0.
Not to be confused with: R02, where the address is right and nothing answers.
What to do: Run `getent hosts NAME` on that host. Correct /etc/hosts or DNS, or give the address itself: --master-addr
  10.0.0.1.
How to inject it: examples/broken/r03_wrong_name.py
Source: getaddrinfo(3); torch/csrc/distributed/c10d/socket.cpp.
"""


# A script that resolves another name, for a download say, prints the same text without torch's prefix.
_UNKNOWN = re.compile(
    r"\((?P<name>[^,()]+), ?\d+\) cannot be retrieved|(c10d|gloo|TCPStore).{0,400}(Name or service not known|name resolution|getaddrinfo)"
)
_LOOPBACK = re.compile(r"^(127\.|localhost|::1|\[::1\])")


def find(case: Case) -> Iterator[CauseFinding]:
    found = joined(case)
    first = next((one for one in found if one.rank == 0), None)
    told = set()
    for one in found:
        if steps_of(case, one.rank):
            continue
        finding = _unknown(case, one) or (_elsewhere(case, one, first) if first is not None else None)
        if finding is not None:
            told.add(one.rank)
            yield finding
    for exit in failures(case):
        line = matching_line(words_of(case, exit), _UNKNOWN)
        if line and exit.rank not in told and not steps_of(case, exit.rank):
            yield _finding(case, exit.rank, exit.host, None, (line,))


def _unknown(case: Case, one: Joined) -> CauseFinding | None:
    snapshot = case.snapshots.get(one.rank)
    seen = snapshot.rendezvous_seen if snapshot is not None and snapshot.rendezvous_seen else ""
    line = matching_line(tail_of(case, one.rank), _UNKNOWN)
    if "name not known" not in seen and not line:
        return None
    looked = f"looking {one.address} up on {one.host}: {seen}" if "name not known" in seen else ""
    saw = (f"rank {one.rank} ({one}) looks for the others at {one.address}", looked, line)
    return _finding(case, one.rank, one.host, one.address, saw)


def _elsewhere(case: Case, one: Joined, first: Joined) -> CauseFinding | None:
    """Whether a loopback address leads a host other than rank 0's to itself."""
    snapshot = case.snapshots.get(one.rank)
    seen = snapshot.rendezvous_seen or "" if snapshot is not None else ""
    loopback = _LOOPBACK.match(one.address or "") or re.search(r"is (127\.|::1)", seen)
    if not loopback or one.host == first.host or _share_a_machine(case):
        return None
    where = f"{one.address} on {one.host} is that host itself, and rank 0 is on {first.host}"
    saw = (
        f"rank {one.rank} ({one}) looks for the others at {one.address}",
        where,
        f"a connection there: {seen}" if seen else "",
    )
    return _finding(case, one.rank, one.host, one.address, saw)


def _share_a_machine(case: Case) -> bool:
    """Hosts of one machine (--local-hosts) joined by loopback addresses, and meet there."""
    joins = (event for event in case.events if event.get("event") == "host_joined")
    return any(str(event.get("address")).startswith("127.") for event in joins)


def _finding(case: Case, rank: int, host: str, address: str | None, saw: tuple[str, ...]) -> CauseFinding:
    name = (address or "").rpartition(":")[0]
    return CauseFinding(
        code="R03",
        title=TITLE,
        level=Level.START,
        ranks=(rank,),
        hosts=(host,),
        confidence=Confidence.HIGH,
        saw=tuple(line for line in saw if line),
        next=(
            f"getent hosts {name or 'NAME'} on {host}",
            "correct /etc/hosts or DNS there, or give an address: --master-addr",
            log_command(case, rank),
        ),
    )


RULE = Cause(
    code="R03",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("R02", "C01", "R01"),
    sure_by=(Ground.WORDS, Ground.EXIT, Ground.SNAPSHOT, Ground.EVENTS),
)
