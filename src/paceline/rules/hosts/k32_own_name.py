"""K32: a host whose own name leads nowhere, or to itself alone."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.host_facts import HostsBefore

PAGE = """\
A host's own name leads nowhere, or to itself alone

What it means: The name that a host has for itself resolves to no address, or to a loopback address such as 127.0.1.1, and the job has
  several hosts.
Why it matters: gloo tells the other ranks the address that the host's own name has. They then connect to themselves, or to nobody, and
  the job stands still or fails in the first exchange (R03, R05). Debian's installer writes such a line into /etc/hosts.
What to do: Give the name an address of the network in /etc/hosts or DNS. Or name the interface: `export GLOO_SOCKET_IFNAME=eth0`, and
  NCCL_SOCKET_IFNAME for NCCL.
Source: gloo, transport/tcp/device.cc; Debian Reference, 5.1.1.
"""


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each such host, if the job has several hosts."""
    if before.host_count < 2:
        return
    for host in before.hosts:
        if host.own_address is None or host.own_address.startswith(("127.", "::1")):
            leads = f"to {host.own_address}" if host.own_address else "nowhere"
            yield Finding(
                code="K32",
                severity=Severity.WARNING,
                what=f"the own name of {host.name} leads {leads}",
                saw=f"getaddrinfo({host.name!r}): {host.own_address or 'no address'}",
                next="export GLOO_SOCKET_IFNAME=INTERFACE, or an address of the network for the name in /etc/hosts",
            )


RULE = Rule(code="K32", page=PAGE, find=find)
