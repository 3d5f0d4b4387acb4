"""K37: two hosts of the job that cannot connect to each other."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.host_facts import HostsBefore

PAGE = """\
Two hosts cannot connect to each other

What it means: A host of the job tried a TCP connection to another one, on a port that a program of paceline's listened on there, and
  got none.
Why it matters: Ranks of all hosts connect to each other on ports that the kernel chooses. Where a firewall or a security group lets
  only some ports through, the job starts, and then stands still in its first exchange (R01, R05).
What to do: Allow all TCP between the hosts of the job: a security group that refers to itself, `ufw allow from NETWORK`. Where a host
  has several networks, name the one that they share: `export GLOO_SOCKET_IFNAME=eth1`, NCCL_SOCKET_IFNAME.
Source: docs/running.md, "Ports"; NCCL documentation, NCCL_SOCKET_IFNAME.
"""


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each pair that failed."""
    if before.host_count > 1 and not before.links:
        raise Unknown("connections between the hosts: none was tried")
    for link in before.links:
        if link.error:
            yield Finding(
                code="K37",
                severity=Severity.ERROR,
                what=f"{link.source} cannot connect to {link.target}",
                saw=link.error,
                next=f"allow all TCP from {link.source} to {link.target}",
            )


RULE = Rule(code="K37", page=PAGE, find=find)
