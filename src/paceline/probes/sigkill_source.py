"""The sender of a SIGKILL, as far as counters and the kernel's log show it; the signal itself does not name it."""

from collections.abc import Iterable

from paceline.probes.cgroup import OomCounters
from paceline.probes.kernel_log import KernelLine, OomKill, oom_kills
from paceline.spelling import plural

NOT_JUDGED = "not judged: no oom counter moved; the sender is unknown"
NOT_FOR_MEMORY = "not killed for memory"


def who_killed(pid: int, before: OomCounters, after: OomCounters, kernel_lines: Iterable[KernelLine] = ()) -> str:
    """One sentence about the end of `pid` by SIGKILL, from counters before and after and the kernel's lines in between.

    Holds:  no counter moved and no line names the pid -> NOT_JUDGED; an unreadable counter is never taken as zero
    """
    kills = oom_kills(kernel_lines)
    named = next((kill for kill in kills if kill.pid == pid), None)
    group_moved, host_moved = _moved(before.group_kills, after.group_kills), _moved(before.host_kills, after.host_kills)
    if named is not None:
        return _full(named.in_group, after) + _held(named)
    if group_moved:
        return _likely_here(kills, group_moved, after)
    if host_moved and group_moved == 0 and len(kills) >= host_moved:
        return (
            f"{NOT_FOR_MEMORY}: the kernel's log names {_pids(kills)} for {_times(host_moved)} of its OOM killer "
            "meanwhile, in other control groups"
        )
    if host_moved and group_moved == 0:
        return (
            f"unclear: the kernel's OOM killer made {_times(host_moved)} on this host meanwhile, "
            "none of them counted in this control group"
        )
    if host_moved:
        return (
            f"likely the kernel's OOM killer: it made {_times(host_moved)} on this host meanwhile, "
            "and the control group's own count cannot be read"
        )
    if group_moved == 0 or host_moved == 0:
        return NOT_JUDGED
    return "not judged: no oom counter can be read here; the sender is unknown"


def killed_for_memory(before: OomCounters, after: OomCounters) -> bool:
    """Whether the counters say that the kernel has killed a process of this control group for memory, or nothing else can be known."""
    group_moved = _moved(before.group_kills, after.group_kills)
    return bool(_moved(before.host_kills, after.host_kills) if group_moved is None else group_moved)


def _moved(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _full(in_group: bool, after: OomCounters) -> str:
    if not in_group:
        return "killed by the kernel's OOM killer: the host ran out of memory"
    limit = f" at its limit of {_mib(after.limit_bytes)}" if after.limit_bytes is not None else ""
    peak = f" (peak {_mib(after.peak_bytes)})" if after.peak_bytes is not None else ""
    return f"killed by the kernel's OOM killer: its memory control group was full{limit}{peak}"


def _held(kill: OomKill) -> str:
    return f"; the process held {_mib(kill.resident_bytes)}" if kill.resident_bytes is not None else ""


def _likely_here(kills: tuple[OomKill, ...], group_moved: int, after: OomCounters) -> str:
    if not kills:
        return "likely " + _full(True, after) + f"; the group counted {_times(group_moved)} meanwhile"
    # The log has the host's process ids; a container has its own, so another number may be the same process.
    return (
        f"unclear: its memory control group counted {_times(group_moved)} by the kernel's OOM killer, "
        f"and the kernel's log names {_pids(kills)}"
    )


def _pids(kills: tuple[OomKill, ...]) -> str:
    return "pid " + ", ".join(f"{kill.pid} ({kill.name})" for kill in kills)


def _times(count: int) -> str:
    return f"{count} {plural(count, 'kill')}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.0f} MiB"
