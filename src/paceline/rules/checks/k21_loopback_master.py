"""K21: several hosts are to meet at an address that means each of them."""

import re
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun

PAGE = """\
Several hosts, and a meeting place that is each of them

What it means: The job has several hosts, and --master-addr is 127.0.0.1 or localhost, which is also what it is where nothing is said.
Why it matters: Every host looks for the first one on itself. The first host waits for the others until the time-out, and they find
  nobody.
What to do: On every host `--master-addr NAME`, a name or an address of the first host that the others can reach. Several hosts on one
  machine: `--local-hosts N`.
Source: torch.distributed.run, --master-addr; paceline help R02.
"""

_LOOPBACK = re.compile(r"127\.|localhost$|::1$|\[::1\]$")


def find(before: BeforeRun) -> Iterator[Finding]:
    """The one address, where it is such a one."""
    if before.hosts > 1 and before.master_addr is not None and _LOOPBACK.match(before.master_addr):
        yield Finding(
            code="K21",
            severity=Severity.WARNING,
            what=f"{before.hosts} hosts are to meet at {before.master_addr}, which no other machine can reach",
            saw=f"--nnodes {before.hosts} --master-addr {before.master_addr}",
            next=f"--nnodes {before.hosts} --master-addr NAME-OF-THE-FIRST-HOST; on one machine --local-hosts {before.hosts}",
        )


RULE = Rule(code="K21", page=PAGE, find=find)
