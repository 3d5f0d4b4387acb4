"""What NCCL's RAS service says in a snapshot: where it is asked, and what two answers show. Only about communicators of this job."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from paceline.diagnosis.snapshots import RasGroup, RasProcess
from paceline.probes import nccl_ras, process_status
from paceline.probes.nccl_ras import RasAnswer, RasCommunicator, RasMissing, RasRank

# More than these are not sent to the first host.
_MOST_GROUPS, _MOST_PROCESSES = 256, 1 << 14
_ANOTHER_JOB = "it names no rank of this job"


@dataclass(frozen=True, slots=True)
class RasFindings:
    """What two answers show."""

    groups: tuple[RasGroup, ...] | None = None
    """The communicators; None: nothing can be said."""
    reason: str = ""
    """Why not; empty: the service was not asked, or it answered."""


def address_of(pids: Iterable[int]) -> str | None:
    """Where the service of these ranks is; None: none of them has loaded NCCL."""
    for pid in pids:
        if _has_nccl(pid):
            environment = process_status.read_environment(pid) or {}
            if environment.get("NCCL_RAS_ENABLE") == "0":
                return None
            return environment.get("NCCL_RAS_ADDR") or nccl_ras.DEFAULT_ADDRESS
    return None


def compared(first: RasAnswer | None, second: RasAnswer | None, pids_here: Collection[int]) -> RasFindings:
    """What stayed as it was between two answers. `pids_here`: the ranks of this host.

    Holds:   an answer that names none of these ranks says nothing: it is another job's
    """
    if first is None or second is None:
        return RasFindings()
    if first.reason or second.reason:
        return RasFindings(reason=first.reason or second.reason)
    named = {rank.pid for one in second.communicators for rank in one.ranks}
    named |= {rank.pid for one in second.communicators for rank in one.missing}
    if named.isdisjoint(pids_here):
        return RasFindings(reason=_ANOTHER_JOB)
    before = {communicator.key: communicator for communicator in first.communicators}
    groups = tuple(_group(communicator, before.get(communicator.key)) for communicator in second.communicators)
    if len(groups) > _MOST_GROUPS or sum(len(one.ahead) + len(one.behind) for one in groups) > _MOST_PROCESSES:
        return RasFindings(reason=f"it has {len(groups)} communicators that differ: too many")
    return RasFindings(groups)


def _group(now: RasCommunicator, before: RasCommunicator | None) -> RasGroup:
    launched = [
        (rank, sum(rank.counts.get(name, most) for name, most in now.most.items())) for rank in now.ranks if rank.counts
    ]
    named = [count for _, count in launched]
    # The text form names the odd ones alone; the others have launched more.
    most = max(named, default=0) if now.is_whole else max(sum(now.most.values()), *named, 0)
    differ = any(count < most for count in named)
    return RasGroup(
        size=now.size,
        is_still=before is not None and _counts(now) == _counts(before) and now.missing == before.missing,
        is_whole=now.is_whole,
        ahead=tuple(_process(rank) for rank, count in launched if count == most and differ),
        behind=tuple(_process(rank) for rank, count in launched if count < most),
        launched=(min(named, default=most), most),
        silent=tuple(_process(one) for one in now.missing if one.unresponsive),
        errors=tuple(f"pid {rank.pid} on {rank.host}: {rank.error}" for rank in now.ranks if rank.error)[:8],
    )


def _counts(communicator: RasCommunicator) -> dict[tuple[str, int], dict[str, int]]:
    return {(rank.host, rank.pid): dict(rank.counts) for rank in communicator.ranks}


def _process(one: RasRank | RasMissing) -> RasProcess:
    return RasProcess(host=one.host, pid=one.pid)


def _has_nccl(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
        return any(b"libnccl" in line for line in maps)
    return False
