"""K30: no torch, or different ones."""

from collections.abc import Iterator

from paceline.diagnosis.crash.missing_package import install_torch
from paceline.findings import Finding, Rule, Severity
from paceline.rules.host_facts import HostsBefore

PAGE = """\
No torch, or not the same one on every host

What it means: The Python that runs the ranks has no torch, or hosts of one job have different versions of Python, torch or paceline.
Why it matters: Without torch every rank ends with ModuleNotFoundError. Different versions may hang in the first exchange, compute
  different numbers, or refuse each other's messages.
What to do: Install the same versions on every host: `python -m pip install torch==VERSION` with the interpreter under "saw".
Source: docs/engines.md; torch.distributed, "Basics".
"""


def find(before: HostsBefore) -> Iterator[Finding]:
    """Hosts without torch, and then the differences between hosts with torch."""
    for host in before.hosts:
        if host.torch is None and host.python is not None:
            yield Finding(
                code="K30",
                severity=Severity.WARNING,
                what=f"the Python of {host.name} has no torch",
                saw=f"{host.interpreter or 'its interpreter'}, Python {host.python}, has no distribution of that name",
                next=install_torch(host.interpreter),
            )
    for what in ("python", "torch", "paceline"):
        versions = {getattr(host, what) for host in before.hosts} - {None}
        if len(versions) > 1:
            said = ", ".join(f"{host.name} {getattr(host, what)}" for host in before.hosts)
            yield Finding(
                code="K30",
                severity=Severity.ERROR,
                what=f"the hosts have different versions of {what}",
                saw=said,
                next=f"the same version of {what} on every host",
            )


RULE = Rule(code="K30", page=PAGE, find=find)
