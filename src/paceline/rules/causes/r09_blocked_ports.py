"""R09: the rendezvous works and the connections between ranks do not."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "ranks cannot reach each other, but the store"
PAGE = """\
Ranks cannot reach each other, but the store

What it means: The ranks met at the store, but their connections to each other's high ports are refused or dropped by
  a firewall, a security group or a service mesh between the hosts. Or gloo told the other ranks a loopback address: it
  takes the address of the host's own name, which Debian and Ubuntu put at 127.0.1.1 in /etc/hosts (K32).
Why it matters: The job seems to start and then hangs, or fails with a message about a mesh of connections.
Deciding evidence: Ranks that had already joined the store printed "connectFullMesh failed" or "NCCL ... connect ...
  timed out".
Not to be confused with: R02, where the store itself cannot be reached.
What to do: Allow every TCP port between the hosts of the job, or select the interface of the right network with
  GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME. Where the message has a loopback address, only the latter helps.
How to inject it: drop connections between hosts by port; judged on recorded evidence only.
Source: gloo/rendezvous/context.cc, connectFullMesh.
"""


_SAYS = re.compile(
    r"connectFullMesh failed|(gloo|NCCL).{0,400}no route to host|socketStartConnect.{0,400}(timed out|refused)",
    re.IGNORECASE,
)


# A connection that was tried to an address that is each host itself.
_TO_ITSELF = re.compile(r"(?:remote=|to |with )\[?(?P<address>127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)\b")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit, line in saying(case, _SAYS):
        loopback = _TO_ITSELF.search(line) if _is_of_several_machines(case) else None
        yield crash(
            case,
            [exit],
            code="R09",
            title=TITLE,
            level=Level.START,
            confidence=Confidence.LIKELY,
            saw=(
                ended(exit),
                line,
                f"gloo gave the address of another host's rank as {loopback['address']}, which is each host itself"
                if loopback
                else "",
            ),
            next=(
                "on every host: export GLOO_SOCKET_IFNAME= and the device that `ip route get ADDRESS-OF-ANOTHER-HOST` names"
                if loopback
                else "allow every TCP port between the hosts of this job",
                log_command(case, exit.rank),
            ),
        )


def _is_of_several_machines(case: Case) -> bool:
    """Whether a host joined from an address of a network. Local hosts have loopback addresses, which are right there."""
    joined = (str(event.get("address")) for event in case.events if event.get("event") == "host_joined")
    return any(not address.startswith(("127.", "::1", "localhost")) for address in joined)


RULE = Cause(
    code="R09", title=TITLE, page=PAGE, find=find, beats=("C01",), preview=True, sure_by=(Ground.WORDS, Ground.EXIT)
)
