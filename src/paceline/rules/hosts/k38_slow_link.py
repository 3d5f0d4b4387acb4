"""K38: a link between hosts that is much slower than the others."""

from collections.abc import Iterator
from statistics import median

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.host_facts import HostsBefore, TriedLink

PAGE = """\
A link between hosts that is slower than the others

What it means: Of the connections between the hosts of the job one has less than a third of the median rate, or more than three times
  the median delay and at least a millisecond more.
Why it matters: Every exchange waits for its slowest link. One host in another zone, or on a card that has fallen back to 1 Gbit/s,
  makes all the others wait (S09, S10).
What to do: See where the host stands (zone, rack, `ethtool eth0`), and take another one. With three hosts or fewer nothing is compared.
Source: docs/exchange.md; ethtool(8).
"""

_TIMES = 3.0
_LEAST_DELAY_SECONDS = 1e-3
_LEAST_LINKS = 4


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each link that is much slower than the others, if there are at least four links."""
    if before.host_count > 1 and not before.links:
        raise Unknown("connections between the hosts: none was tried")
    good = [link for link in before.links if not link.error]
    rates = [link.bytes_per_second for link in good if link.bytes_per_second]
    delays = [link.delay_seconds for link in good if link.delay_seconds]
    for link in good:
        if len(rates) >= _LEAST_LINKS and link.bytes_per_second and link.bytes_per_second * _TIMES < median(rates):
            what = f"{link.bytes_per_second * 8e-9:.2f} Gbit/s, where the median link has {median(rates) * 8e-9:.2f}"
            yield _finding(link, what)
        if len(delays) >= _LEAST_LINKS and link.delay_seconds:
            least = max(_TIMES * median(delays), median(delays) + _LEAST_DELAY_SECONDS)
            if link.delay_seconds > least:
                yield _finding(
                    link,
                    f"a byte and its answer take {link.delay_seconds * 1e3:.1f} ms; median {median(delays) * 1e3:.1f} ms",
                )


def _finding(link: TriedLink, what: str) -> Finding:
    return Finding(
        code="K38",
        severity=Severity.WARNING,
        what=f"the link from {link.source} to {link.target} is slow: {what}",
        saw="one connection, measured once",
        next=f"ethtool on {link.source} and {link.target}; measure again with: paceline bench all_reduce",
    )


RULE = Rule(code="K38", page=PAGE, find=find)
