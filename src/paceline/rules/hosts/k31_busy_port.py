"""K31: a port that the job wants is taken."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.host_facts import HostsBefore

PAGE = """\
A port of the job is taken

What it means: On the first host another process listens on the port on which the agents or the ranks are to meet, or this user may not
  listen there (ports below 1024).
Why it matters: The job is refused at its start (U04), or, with a script that chooses the port itself, meets somebody else's job.
What to do: Choose another one: `--master-port`. The message names the process that has it, where this user may see that.
Source: bind(2), EADDRINUSE and EACCES; paceline help U04.
"""


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each port that is in use."""
    for host in before.hosts:
        for port, by in host.busy_ports.items():
            yield Finding(
                code="K31",
                severity=Severity.ERROR,
                what=f"port {port} of {host.name} cannot be had",
                saw=by,
                next=f"--master-port {port + 1 if port >= 1024 else 29500}",
            )


RULE = Rule(code="K31", page=PAGE, find=find)
