"""What NCCL's own counts say about the ranks of a hang: who has launched fewer collectives, and whose NCCL does not answer. Pure.

NCCL counts what was launched, not what is over. So equal counts show that no rank is missing, and nothing about what does not end.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.diagnosis.case import Case
from paceline.diagnosis.snapshots import RasProcess


@dataclass(frozen=True, slots=True)
class NcclCounts:
    """The answers of NCCL's RAS service, by the ranks of the job."""

    late: tuple[int, ...] = ()
    """Ranks that have launched fewer collectives than others of a communicator, and wait in none themselves, sorted."""
    waiting: tuple[int, ...] = ()
    """Ranks that have launched most of such a communicator, sorted."""
    launched: tuple[int, int] = (0, 0)
    """What the late and the others have launched, in one such communicator."""
    silent: tuple[int, ...] = ()
    """Ranks whose NCCL does not answer, sorted."""
    all_alike: bool = False
    """Every rank of every communicator has launched as many as the others."""
    errors: tuple[str, ...] = ()
    """What NCCL has found wrong."""


def nccl_counts(case: Case) -> NcclCounts | None:
    """What the service said twice while the job stood still; None: it was not asked, did not answer, or names other processes.

    Holds:   a communicator that changed between the answers makes no rank late
    """
    if case.stall is None:
        return None
    groups = next((snapshot.ras for snapshot in case.host_snapshots.values() if snapshot.ras), None)
    if groups is None:
        return None
    ranks = _ranks_by_pid(case)
    named = {one.pid for group in groups for one in (*group.ahead, *group.behind, *group.silent)}
    if not named <= ranks.keys():
        return None
    uneven = [group for group in groups if group.is_still and group.behind]
    behind = {rank for group in uneven for rank in _of(group.behind, ranks)}
    ahead = {rank for group in uneven for rank in _of(group.ahead, ranks)}
    late = behind - ahead
    of_late = next((group for group in uneven if late & _of(group.behind, ranks)), None)
    return NcclCounts(
        late=tuple(sorted(late)),
        waiting=tuple(sorted(ahead)),
        launched=of_late.launched if of_late is not None else (0, 0),
        silent=tuple(sorted({rank for group in groups for rank in _of(group.silent, ranks)})),
        all_alike=all(group.is_still and group.is_whole and not group.behind for group in groups),
        errors=tuple(error for group in groups for error in group.errors)[:4],
    )


def _ranks_by_pid(case: Case) -> Mapping[int, int]:
    """Process id -> rank, of those that no two hosts have: NCCL's name of a host is not ours."""
    found: dict[int, list[int]] = {}
    for rank, heartbeat in case.heartbeats.items():
        if heartbeat.pid is not None:
            found.setdefault(heartbeat.pid, []).append(rank)
    return {pid: ranks[0] for pid, ranks in found.items() if len(ranks) == 1}


def _of(processes: tuple[RasProcess, ...], ranks: Mapping[int, int]) -> set[int]:
    return {ranks[one.pid] for one in processes}
