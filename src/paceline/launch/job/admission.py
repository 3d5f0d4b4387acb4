"""Which hosts the coordinator admits, and under which name. Pure."""

from collections.abc import Collection, Sequence
from typing import Any

from paceline.facts import Job
from paceline.launch.job.messages import Hello, RefusedMessage
from paceline.launch.job.state import Member
from paceline.probes.ports import is_local_address

SPARE_FACTOR = 2


def missing_hosts(job: Job, members: Sequence[Member], address: str) -> list[dict[str, Any]]:
    """One entry per missing host: its node rank and its ranks if they are known, and what was seen.

    Holds:  static node ranks -> one entry per missing node rank; otherwise one entry that counts the missing hosts
    """
    saw = f"its agent never contacted {address}:{job.agents_port}"
    if not is_local_address(address):
        saw = f"{address} is not an address of this host, so nobody can reach it here"
    here = {member.node_rank for member in members}
    if job.node_rank is None:
        return [{"host": f"{job.min_hosts - len(members)} more", "ranks": None, "saw": saw}]
    per_host = job.ranks_per_host
    return [
        {
            "host": f"node {node_rank}",
            "ranks": [node_rank * per_host, (node_rank + 1) * per_host - 1],
            "saw": saw,
        }
        for node_rank in range(job.min_hosts)
        if node_rank not in here
    ]


def why_refused(job: Job, members: Sequence[Member], address: str, hello: Hello) -> RefusedMessage | None:
    """The reason, in four parts, why a host cannot join this job; None: the host can join. `address` is the first host's address."""
    ours = (job.min_hosts, job.max_hosts)
    if hello.hosts_wanted != ours:
        return RefusedMessage(
            code="U05",
            what=f"{hello.host_name} was started for {_hosts(hello.hosts_wanted)} hosts, the first host for {_hosts(ours)}",
            saw=f"--nnodes {_hosts(hello.hosts_wanted)} there, --nnodes {_hosts(ours)} at {address}",
            next=f"paceline run --nnodes {_hosts(ours)} ...",
        )
    if hello.node_rank is not None and job.node_rank is None:
        return RefusedMessage(
            code="U05",
            what=f"{hello.host_name} and the first host were started in two ways: by node rank and by arrival",
            saw=f"node rank {hello.node_rank} there, none at {address}; rank 0 has to be on the first host",
            next="give every host the same --rdzv-backend",
        )
    if hello.node_rank is not None and hello.node_rank >= job.max_hosts:
        return RefusedMessage(
            code="U05",
            what=f"node rank {hello.node_rank} is none of this job's",
            saw=f"--nnodes {_hosts(ours)}: node ranks 0 to {job.max_hosts - 1}",
            next="give every host a --node-rank of its own, counted from 0",
        )
    taken = {member.node_rank: member.host for member in members if member.node_rank is not None}
    if hello.node_rank is not None and hello.node_rank in taken:
        return RefusedMessage(
            code="U05",
            what=f"node rank {hello.node_rank} is taken",
            saw=f"{taken[hello.node_rank]} has it; {hello.host_name} asks for it too",
            next="give every host a --node-rank of its own",
        )
    # In a job whose number of hosts may change, more hosts than there are places may wait, up to a limit.
    room = job.max_hosts if job.min_hosts == job.max_hosts else SPARE_FACTOR * job.max_hosts
    if len(members) >= room:
        return RefusedMessage(
            code="U05",
            what=f"the job at {address} has its {_hosts(ours)} hosts",
            saw=f"{', '.join(member.host for member in members[:8])}{', ...' if len(members) > 8 else ''}",
            next="start it with a larger --nnodes, or another job on another port",
            later=True,
        )
    return None


def unique_name(wanted: str, address: str, taken: Collection[str]) -> str:
    """The name of a host in the run: its own name, or its address if the name is taken, or its own name with a number if both are.

    Holds:  the result is not in taken
    """
    candidates = [wanted, address, *(f"{wanted}-{number}" for number in range(2, len(taken) + 3))]
    return next(candidate for candidate in candidates if candidate not in taken)


def _hosts(wanted: tuple[int, int]) -> str:
    return str(wanted[0]) if wanted[0] == wanted[1] else f"{wanted[0]}:{wanted[1]}"
