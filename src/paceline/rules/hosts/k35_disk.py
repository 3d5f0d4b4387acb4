"""K35: little room where the recording goes."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.host_facts import HostsBefore

PAGE = """\
Little room where the recording goes

What it means: The disk that holds the directory of recordings has less than 1 GiB left; below 64 MiB it is an error.
Why it matters: Logs, events and telemetry lie there, and often checkpoints too. Where the disk is full the job goes on, but its
  recording ends, and `paceline why` knows little.
What to do: Make room (`du -sh .paceline/runs/*`), or record elsewhere: `--run-dir /a/directory/with/room`.
Source: docs/recording.md.
"""

_ADVISED_BYTES, _LEAST_BYTES = 1 << 30, 64 << 20


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each host with too little space."""
    unknown = [host.name for host in before.hosts if host.run_dir_bytes is None]
    for host in before.hosts:
        if host.run_dir_bytes is not None and host.run_dir_bytes < _ADVISED_BYTES:
            yield Finding(
                code="K35",
                severity=Severity.ERROR if host.run_dir_bytes < _LEAST_BYTES else Severity.WARNING,
                what=f"{host.name} has {host.run_dir_bytes >> 20} MiB left for recordings",
                saw=f"df {host.run_dir}",
                next="--run-dir /a/directory/with/room",
            )
    if unknown and len(unknown) == len(before.hosts):
        raise Unknown(f"the room for recordings on {', '.join(unknown)}")


RULE = Rule(code="K35", page=PAGE, find=find)
