"""A host's own counters from /proc: CPU, memory, interfaces, block devices, pressure. Totals since it started."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SECTOR_BYTES = 512
_WHOLE_DISK = {"sd": 3, "vd": 3, "xvd": 4, "hd": 3}
_NO_DISK = ("loop", "ram", "zram", "sr", "fd")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """Time of all CPUs together, from the first line of /proc/stat."""

    busy_seconds: float
    """Time in which a CPU worked."""
    idle_seconds: float
    """Time in which a CPU was idle."""
    iowait_seconds: float
    """Idle time while a task waited for a disk."""
    steal_seconds: float
    """Time that the hypervisor gave to other guests."""

    @property
    def total_seconds(self) -> float:
        return self.busy_seconds + self.idle_seconds + self.iowait_seconds + self.steal_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceCounters:
    received_bytes: int
    sent_bytes: int
    dropped_packets: int
    error_packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCounters:
    read_bytes: int
    written_bytes: int
    busy_seconds: float


def parse_stat(text: str) -> CpuTimes:
    """The `cpu` line of /proc/stat; time of guests is already in that of their users."""
    ticks = [int(field) for field in text.split("\n", 1)[0].split()[1:]]
    ticks += [0] * (8 - len(ticks))
    user, nice, system, idle, iowait, irq, softirq, steal = ticks[:8]
    return CpuTimes(
        busy_seconds=(user + nice + system + irq + softirq) / TICKS_PER_SECOND,
        idle_seconds=idle / TICKS_PER_SECOND,
        iowait_seconds=iowait / TICKS_PER_SECOND,
        steal_seconds=steal / TICKS_PER_SECOND,
    )


def cpu_fractions(before: CpuTimes, after: CpuTimes) -> dict[str, float] | None:
    """Fractions of the time between two readings; None if no tick has passed.

    Holds:  busy + idle + iowait + steal == 1
    """
    passed = after.total_seconds - before.total_seconds
    if passed <= 0:
        return None
    return {
        "busy_fraction": round((after.busy_seconds - before.busy_seconds) / passed, 4),
        "iowait_fraction": round((after.iowait_seconds - before.iowait_seconds) / passed, 4),
        "steal_fraction": round((after.steal_seconds - before.steal_seconds) / passed, 4),
    }


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name, from /proc/meminfo."""
    sizes = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3:
            sizes[words[0].rstrip(":")] = int(words[1]) * 1024
    return sizes


def memory_facts(meminfo: Mapping[str, int]) -> dict[str, int]:
    """Total, available, used and swapped bytes; "used" is memory that is not available without swapping."""
    total, available = meminfo["MemTotal"], meminfo["MemAvailable"]
    return {
        "total_bytes": total,
        "available_bytes": available,
        "used_bytes": total - available,
        "swap_used_bytes": meminfo.get("SwapTotal", 0) - meminfo.get("SwapFree", 0),
    }


def parse_net_dev(text: str) -> dict[str, InterfaceCounters]:
    """Interface -> counters, from /proc/net/dev; an interface that never carried a packet is left out."""
    interfaces = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = [int(field) for field in rest.split()]
        if len(fields) >= 16 and (fields[0] or fields[8]):
            interfaces[name.strip()] = InterfaceCounters(
                received_bytes=fields[0],
                sent_bytes=fields[8],
                dropped_packets=fields[3] + fields[11],
                error_packets=fields[2] + fields[10],
            )
    return interfaces


def parse_diskstats(text: str) -> dict[str, DiskCounters]:
    """Whole block device -> counters, from /proc/diskstats; partitions, loop and memory devices are left out."""
    disks = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 13 and _is_whole_disk(fields[2]) and (fields[5] != "0" or fields[9] != "0"):
            disks[fields[2]] = DiskCounters(
                read_bytes=int(fields[5]) * _SECTOR_BYTES,
                written_bytes=int(fields[9]) * _SECTOR_BYTES,
                busy_seconds=int(fields[12]) / 1000,
            )
    return disks


def parse_pressure(text: str) -> dict[str, float]:
    """Total stalled seconds of /proc/pressure/*: `some_seconds`, and `full_seconds` if the kernel counts it."""
    stalled = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        stalled[f"{kind}_seconds"] = int(rest.rpartition("total=")[2]) / 1e6
    return stalled


def _is_whole_disk(name: str) -> bool:
    if name.startswith(_NO_DISK):
        return False
    if name.startswith(("nvme", "mmcblk")):
        return "p" not in name.removeprefix("mmcblk").removeprefix("nvme")
    prefix = name.rstrip("0123456789")
    return not any(
        name.startswith(kind) and prefix != name and len(prefix) >= length for kind, length in _WHOLE_DISK.items()
    )
