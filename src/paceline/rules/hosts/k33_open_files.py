"""K33: a limit of open files that is too low for the job."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.host_facts import HostsBefore

PAGE = """\
A limit of open files that is too low

What it means: The soft limit of open files is below what the ranks of a host are likely to need: their connections to each other, and
  the tensors that DataLoader workers hand over.
Why it matters: The job fails in the middle, with "Too many open files" or "received 0 items of ancdata" (C10), often after hours.
What to do: `ulimit -n 65536` before the job, or a line in /etc/security/limits.conf; in a container `--ulimit nofile=65536`.
Source: getrlimit(2), RLIMIT_NOFILE; torch.multiprocessing, "Sharing strategies".
"""

# A rank has about a hundred open files of its own, a connection to every other rank of a mesh, and one file per tensor in transfer.
_OF_A_RANK, _LEAST = 256, 1024


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each host whose limit is too low."""
    ranks = before.ranks_per_host or 1
    wanted = max(_LEAST, _OF_A_RANK + before.host_count * ranks)
    for host in before.hosts:
        if host.open_files is not None and host.open_files < wanted:
            yield Finding(
                code="K33",
                severity=Severity.WARNING,
                what=f"{host.name} lets a process open {host.open_files} files; {wanted} are advised",
                saw=f"ulimit -n: {host.open_files}",
                next=f"ulimit -n {max(wanted, 65536)}",
            )


RULE = Rule(code="K33", page=PAGE, find=find)
