"""Processes that use a host's CPUs, and which of them belong to the job."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from paceline.probes.process_status import read_environment, read_name
from paceline.probes.processes import ProcessStat, read_stat

LEAST_CORES = 0.1
_MOST_NAMED = 8
# Set in every rank of a job, also in those that another agent of the same run started here.
RUN_VARIABLE = "PACELINE_RUN_ID"


@dataclass(frozen=True, slots=True)
class BusyProcess:
    pid: int
    name: str
    cores: float


def read_processes() -> dict[int, ProcessStat]:
    """Every process of this host as it is now."""
    found = (read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {stat.pid: stat for stat in found if stat is not None}


def below(roots: Iterable[int], processes: Mapping[int, ProcessStat]) -> set[int]:
    """The processes given and everything below them, among those read."""
    children: dict[int, list[int]] = {}
    for stat in processes.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def busy_processes(
    before: Mapping[int, ProcessStat], after: Mapping[int, ProcessStat], seconds: float, ours: Collection[int]
) -> dict[int, float]:
    """pid -> cores, of those outside `ours` that use at least LEAST_CORES, the busiest first.

    Holds:  a pid that was used again between the two readings counts as new
    """
    cores = {}
    for pid, stat in after.items():
        first = before.get(pid)
        # Without children waited for: a shell that reaps a long job has not used its hours just now.
        earlier = first.own_cpu_seconds if first is not None and first.start_ticks == stat.start_ticks else 0.0
        used = (stat.own_cpu_seconds - earlier) / seconds if seconds > 0 else 0.0
        if pid not in ours and used >= LEAST_CORES:
            cores[pid] = round(used, 2)
    return dict(sorted(cores.items(), key=lambda item: -item[1]))


def named(
    cores: Mapping[int, float], run_ids: Collection[str], processes: Mapping[int, ProcessStat]
) -> tuple[BusyProcess, ...]:
    """Those that are neither a process nor an agent of one of these runs, with their names.

    Several agents of one run may share a machine. A process that may not be read counts as foreign.
    """
    found = []
    for pid, used in cores.items():
        its_ranks = (stat.pid for stat in processes.values() if stat.parent == pid)
        if any((read_environment(one) or {}).get(RUN_VARIABLE) in run_ids for one in (pid, *its_ranks)):
            continue
        # One that has ended meanwhile can be neither named nor moved away.
        if name := read_name(pid):
            found.append(BusyProcess(pid, name, used))
        if len(found) == _MOST_NAMED:
            break
    return tuple(found)
