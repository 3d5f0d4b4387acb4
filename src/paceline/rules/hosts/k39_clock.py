"""K39: clocks of hosts that differ."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.host_facts import HostsBefore

PAGE = """\
The clocks of hosts differ

What it means: The clock of a host is more than a second ahead of this machine's, or behind it.
Why it matters: Credentials of clouds are refused from about five minutes on, and certificates too. Stamps in logs of different hosts
  cannot be compared; paceline's own comparisons use offsets that it measures.
What to do: `chronyc tracking` or `timedatectl` on that host; `systemctl restart chronyd`.
Source: chronyc(1); AWS General Reference, "Signature Version 4", clock skew.
"""

_ALLOWED_SECONDS = 1.0


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each host whose clock is certainly off by more than a second."""
    if before.host_count > 1 and len(before.hosts) == 1:
        raise Unknown("the clocks of the other hosts")
    for host in before.hosts:
        offset = host.clock_offset_seconds
        if offset is not None and abs(offset) - host.clock_error_seconds > _ALLOWED_SECONDS:
            yield Finding(
                code="K39",
                severity=Severity.WARNING,
                what=f"the clock of {host.name} is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this machine's",
                saw=f"{offset:+.3f} s, give or take {host.clock_error_seconds:.3f} s",
                next=f"ssh {host.name} chronyc tracking",
            )


RULE = Rule(code="K39", page=PAGE, find=find)
