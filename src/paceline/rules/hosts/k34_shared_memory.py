"""K34: little room on /dev/shm."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.host_facts import HostsBefore

PAGE = """\
Little room on /dev/shm

What it means: /dev/shm has less than 256 MiB for each rank of the host. Containers get 64 MiB unless they are told otherwise.
Why it matters: DataLoader workers hand their batches over in it, NCCL and paceline's exchange use it between ranks of a host. Where it
  is full, a worker dies with a bus error or "unable to write to file" (C08).
What to do: `docker run --shm-size 8g` or `--ipc host`; in Kubernetes an emptyDir of medium Memory at /dev/shm; elsewhere `mount -o
  remount,size=8g /dev/shm`.
Source: torch.utils.data, "Multi-process data loading"; docker run, --shm-size.
"""

_OF_A_RANK_BYTES = 256 << 20


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each host with too little space."""
    wanted = _OF_A_RANK_BYTES * (before.ranks_per_host or 1)
    size = f"{max(8, -(-wanted >> 30))}g"
    unknown = [host.name for host in before.hosts if host.shm_bytes is None]
    for host in before.hosts:
        if host.shm_bytes is not None and host.shm_bytes < wanted:
            yield Finding(
                code="K34",
                severity=Severity.WARNING,
                what=f"/dev/shm of {host.name} has room for {host.shm_bytes >> 20} MiB; {wanted >> 20} MiB are advised",
                saw="df /dev/shm",
                next=f"docker run --shm-size {size} ..., or mount -o remount,size={size} /dev/shm",
            )
    if unknown and len(unknown) == len(before.hosts):
        raise Unknown(f"the size of /dev/shm on {', '.join(unknown)}")


RULE = Rule(code="K34", page=PAGE, find=find)
