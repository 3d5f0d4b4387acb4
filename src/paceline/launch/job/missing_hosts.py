"""Who is missing before a job can form, and what was seen of them. Pure, but for the look at this host's addresses."""

from collections.abc import Sequence
from typing import Any

from paceline.facts import Job
from paceline.launch.job.state import Member
from paceline.probes.ports import is_local_address


def missing_hosts(job: Job, seats: Sequence[Member], address: str) -> list[dict[str, Any]]:
    """One entry per host that has not come: its node rank and ranks where they are known, and what was seen.

    Holds: static node ranks -> one entry per missing node rank; otherwise one entry that counts them
    """
    saw = f"its agent never contacted {address}:{job.agents_port}"
    if not is_local_address(address):
        saw = f"{address} is not an address of this host, so nobody can reach it here"
    here = {seat.node_rank for seat in seats}
    if job.node_rank is None:
        return [{"host": f"{job.min_hosts - len(seats)} more", "ranks": None, "saw": saw}]
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
