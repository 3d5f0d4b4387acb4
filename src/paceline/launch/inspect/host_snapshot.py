"""The host in a snapshot: its load, other processes on it, room on its file systems, and messages of its kernel."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paceline.diagnosis.snapshots import Filesystem, HostSnapshot, RasGroup
from paceline.probes import host_counters
from paceline.probes.disks import read_disks
from paceline.probes.filesystems import Room
from paceline.probes.kernel_log import KernelLine, KernelLines, read_kernel_lines
from paceline.probes.other_processes import RUN_VARIABLE, below, busy_processes, named
from paceline.probes.processes import ProcessStat
from paceline.recording.liveness import this_machine

_MOST_LINES = 20
# The kernel's stamps and a process's start time come from clocks that differ slightly.
_CLOCK_SECONDS = 5.0
_MATTERS = re.compile(
    r"out of memory|oom-kill|oom_reaper|killed process|NVRM|\bXid\b|EDAC|hardware error|\bmce\b|not responding|timed out"
    r"|blocked for more than|soft lockup|hard lockup|rcu.{0,80}stall|I/O error|EXT4-fs error"
    r"|XFS .{0,80}(?:error|shutdown)|BTRFS.{0,80}error"
    r"|remounting filesystem read-only|segfault at|general protection|trap invalid opcode|page allocation failure"
    r"|link (?:is )?down|NIC Link is Down|AER:|nvlink|infiniband|mlx5.{0,80}(?:error|fatal)|nf_conntrack: table full",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """A host's counters at one moment. A counter is None if the kernel does not show it."""

    at: float
    """When the counters were read, in monotonic seconds."""
    cpu: host_counters.CpuTimes | None
    """CPU times since the boot, summed over all CPUs."""
    pressure: dict[str, float]
    """cpu, memory or io -> seconds since the boot in which some task waited for it. Values that the kernel does not show are left out."""
    load_1m: float | None
    """Load average of the last minute."""
    memory_available_bytes: int | None
    """`MemAvailable` of /proc/meminfo."""
    disks: dict[str, int]
    """major:minor of each block device -> bytes read and written since the boot."""


def read_host() -> HostReading:
    """The host's counters now."""
    cpu, load, available = None, None, None
    with suppress(OSError, ValueError):
        cpu = host_counters.parse_stat(Path("/proc/stat").read_text())
    with suppress(OSError, ValueError, IndexError):
        load = float(Path("/proc/loadavg").read_text().split()[0])
    with suppress(OSError, ValueError):
        available = host_counters.parse_meminfo(Path("/proc/meminfo").read_text()).get("MemAvailable")
    pressure = {}
    for name in ("cpu", "memory", "io"):
        with suppress(OSError, ValueError):
            pressure[name] = host_counters.parse_pressure(Path(f"/proc/pressure/{name}").read_text())["some_seconds"]
    return HostReading(
        at=time.monotonic(),
        cpu=cpu,
        pressure=pressure,
        load_1m=load,
        memory_available_bytes=available,
        disks=read_disks(),
    )


def disk_rates(first: HostReading | None, last: HostReading | None) -> dict[str, float]:
    """major:minor -> bytes a second that the disk moved between two readings, for whomever."""
    if first is None or last is None or last.at <= first.at:
        return {}
    return {
        device: (moved - first.disks[device]) / (last.at - first.at)
        for device, moved in last.disks.items()
        if device in first.disks
    }


def read_lines(started_ticks: int | None) -> KernelLines:
    """The kernel's log since the oldest rank began; the whole log if that time is not known."""
    since = 0.0 if started_ticks is None else started_ticks / host_counters.TICKS_PER_SECOND - _CLOCK_SECONDS
    return read_kernel_lines(max(since, 0.0))


def lines_that_matter(lines: Sequence[KernelLine]) -> tuple[str, ...]:
    """The newest lines that may explain a job's failure: lines about memory, devices, disks, mounts and crashes."""
    return tuple(f"[{line.seconds:.1f}] {line.text[:300]}" for line in lines if _MATTERS.search(line.text))[
        -_MOST_LINES:
    ]


def snapshot_of_host(
    readings: tuple[HostReading | None, HostReading | None],
    processes: tuple[Mapping[int, ProcessStat], Mapping[int, ProcessStat]],
    *,
    host: str,
    at_ns: int,
    attempt: int,
    seconds: float,
    rank_pids: Sequence[int],
    environments: Sequence[Mapping[str, str]],
    kernel: KernelLines | None,
    rooms: Sequence[Room],
    ras: tuple[RasGroup, ...] | None,
    missing: Sequence[str],
) -> HostSnapshot:
    """The HostSnapshot from two readings of counters and processes."""
    first, last = readings
    before, after = processes
    fractions = host_counters.cpu_fractions(first.cpu, last.cpu) if first and last and first.cpu and last.cpu else None
    ours = below([*rank_pids, os.getpid()], after)
    run_ids = {run for environment in environments if (run := environment.get(RUN_VARIABLE))}
    foreign = named(busy_processes(before, after, seconds, ours), run_ids, after)
    said = list(missing)
    if kernel is not None and kernel.reason:
        said.append(f"the kernel's log: {kernel.reason}")
    said += [
        f"pressure ({name}): /proc/pressure is not there"
        for name in ("cpu", "memory", "io")
        if last and name not in last.pressure
    ]
    return HostSnapshot(
        host=host,
        at_ns=at_ns,
        attempt=attempt,
        machine=this_machine().boot_id,
        cpu_count=os.cpu_count(),
        load_1m=last.load_1m if last else None,
        busy_fraction=fractions["busy_fraction"] if fractions else None,
        steal_fraction=fractions["steal_fraction"] if fractions else None,
        pressure_cpu=_pressure("cpu", first, last),
        pressure_memory=_pressure("memory", first, last),
        pressure_io=_pressure("io", first, last),
        memory_available_bytes=last.memory_available_bytes if last else None,
        foreign=tuple((one.pid, one.name, one.cores) for one in foreign),
        filesystems=tuple(_filesystem(room) for room in dict.fromkeys(rooms)),
        kernel_lines=None if kernel is None or kernel.reason else lines_that_matter(kernel.lines),
        ras=ras,
        not_judged=tuple(said),
    )


def _filesystem(room: Room) -> Filesystem:
    return Filesystem(
        what=room.what,
        path=room.path,
        total_bytes=room.total_bytes,
        free_bytes=room.free_bytes,
        free_inodes=room.free_inodes,
        kind=room.kind,
    )


def _pressure(name: str, first: HostReading | None, last: HostReading | None) -> float | None:
    if first is None or last is None or name not in first.pressure or name not in last.pressure or last.at <= first.at:
        return None
    return round(min(max(last.pressure[name] - first.pressure[name], 0.0) / (last.at - first.at), 1.0), 4)
