"""Control groups of a process, version 1 and 2: where they are, what they limit, and how many OOM kills they count."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Version 1 writes "no limit" as the largest page-aligned number.
_UNLIMITED_V1 = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One cgroup file system."""

    point: str
    """Where it is mounted."""
    root: str
    """The group of the hierarchy that `point` shows."""
    version: int
    """1 or 2."""
    controllers: frozenset[str]
    """Controllers of version 1; empty for version 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """The directory of one controller for one process."""

    directory: Path
    """The group's own directory."""
    top: Path
    """Where its hierarchy begins."""
    version: int
    """1 or 2."""

    def and_parents(self) -> Iterator[Path]:
        directory = self.directory
        while directory != self.top and self.top in directory.parents:
            yield directory
            directory = directory.parent
        yield self.top


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCounters:
    """Memory of a control group."""

    limit_bytes: int | None
    """Smallest limit from the group up to the top; None: there is none."""
    used_bytes: int | None
    """Memory in use."""
    peak_bytes: int | None
    """Largest use so far."""
    oom_kills: int | None
    """Kills by the OOM killer so far; it only grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCounters:
    """CPU quota of a control group."""

    quota_cpus: float | None
    """CPUs that it may use; None: there is no quota."""
    periods: int | None
    """Periods so far."""
    throttled_periods: int | None
    """Periods in which the quota was used up."""
    throttled_seconds: float | None
    """Time for which the group was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """CPU quota at every level up to the top."""

    quota_cpus: float | None
    """Smallest quota; None: there is none."""
    periods: Mapping[str, tuple[int, int]]
    """Group -> (periods, periods in which the quota was used up)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCounts:
    """Processes and threads of a pids control group, at the level that is nearest to its limit."""

    used_count: int | None = None
    """Processes and threads there."""
    limit_count: int | None = None
    """The limit there; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomCounters:
    """OOM kills so far. None: not readable here."""

    group_kills: int | None = None
    """Kills in the control group."""
    host_kills: int | None = None
    """Kills on the whole host."""
    limit_bytes: int | None = None
    """Memory limit of the group."""
    peak_bytes: int | None = None
    """Largest memory use of the group."""
    group: str = ""
    """Path of the group."""


def parse_membership(text: str) -> dict[str, str]:
    """Controller -> path, from /proc/PID/cgroup; the key "" is version 2.

    Holds:  "4:memory:/a" -> {"memory": "/a"}; "0::/b" -> {"": "/b"}
    """
    membership = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            membership[controller] = path
    return membership


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The cgroup file systems of /proc/PID/mountinfo."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = [*after.split(" ", 2), "", ""][:3]
        if kind in ("cgroup", "cgroup2"):
            fields = before.split(" ")
            controllers = frozenset(options.split(" ")[-1].split(",")) if kind == "cgroup" else frozenset()
            mounts.append(
                Mount(
                    point=_unescaped(fields[4]),
                    root=_unescaped(fields[3]),
                    version=1 if kind == "cgroup" else 2,
                    controllers=controllers,
                )
            )
    return tuple(mounts)


def locate(controller: str, membership: Mapping[str, str], mounts: tuple[Mount, ...]) -> ControlGroup | None:
    """Where `controller` is for a process: in its version 1 hierarchy if that is mounted, else in version 2."""
    for mount in mounts:
        if mount.version == 1 and controller in mount.controllers and controller in membership:
            return _within(mount, membership[controller])
    for mount in mounts:
        if mount.version == 2 and "" in membership:
            return _within(mount, membership[""])
    return None


def control_group(controller: str, pid: int | str = "self") -> ControlGroup | None:
    """`locate` for a running process; None if /proc does not show it or the controller is not mounted."""
    read = _membership_and_mounts(pid)
    group = locate(controller, *read) if read is not None else None
    return group if group is not None and group.directory.is_dir() else None


def frozen_by(pid: int) -> str | None:
    """The file that thaws a frozen process; empty: the process is not frozen; None: not known.

    Both versions are asked: a host may have the freezer of version 1 and freeze a service by version 2.
    """
    read = _membership_and_mounts(pid)
    if read is None:
        return None
    membership, mounts = read
    version_2 = tuple(mount for mount in mounts if mount.version == 2)
    groups = [locate("freezer", membership, mounts), locate("freezer", membership, version_2)]
    states = [thawing_file(group) for group in groups if group is not None]
    return next((state for state in states if state), "" if "" in states else None)


def thawing_file(group: ControlGroup) -> str | None:
    """The file of the highest frozen level; empty if the group runs; None if its files are missing."""
    state_file, wish_file, thaw_file = (
        ("freezer.state", "freezer.self_freezing", "freezer.state")
        if group.version == 1
        else ("cgroup.events", "cgroup.freeze", "cgroup.freeze")
    )
    state = _read(group.directory / state_file)
    if not state:
        # The top group cannot be frozen, and has no such file.
        return "" if group.directory == group.top else None
    if group.version == 2 and parse_counters(state).get("frozen") != 1:
        return ""
    if group.version == 1 and state.strip() == "THAWED":
        return ""
    wished = [level for level in group.and_parents() if _read(level / wish_file).strip() == "1"]
    return str((wished[-1] if wished else group.directory) / thaw_file)


def throttling(group: ControlGroup) -> Throttling:
    """How often the CPU quota was used up, at each level: the group's own file does not count a limit further up."""
    periods = {}
    for directory in group.and_parents():
        counters = parse_counters(_read(directory / "cpu.stat"))
        if "nr_periods" in counters:
            periods[str(directory)] = counters["nr_periods"], counters.get("nr_throttled", 0)
    return Throttling(quota_cpus=_quota(group), periods=periods)


def throttled_fraction(before: Throttling, after: Throttling) -> float:
    """Fraction of quota periods between two readings in which the quota was used up, at the worst level.

    Holds:  0.0 where no period passed: without a quota none is counted
    """
    worst = 0.0
    for directory, (periods, throttled) in after.periods.items():
        first_periods, first_throttled = before.periods.get(directory, (periods, throttled))
        if periods > first_periods:
            worst = max(worst, (throttled - first_throttled) / (periods - first_periods))
    return min(worst, 1.0)


def process_counts(group: ControlGroup) -> ProcessCounts:
    """Processes of a pids control group against its limit."""
    counts = ProcessCounts(used_count=_number(_read(group.directory / "pids.current")))
    for directory in group.and_parents():
        used, limit = _number(_read(directory / "pids.current")), _number(_read(directory / "pids.max"))
        if used is not None and limit is not None:
            nearer = counts.limit_count is None or limit - used < counts.limit_count - (counts.used_count or 0)
            counts = ProcessCounts(used_count=used, limit_count=limit) if nearer else counts
    return counts


def memory_counters(group: ControlGroup) -> MemoryCounters:
    """Limit, use, peak and OOM kills of a memory control group; None if a file is missing."""
    if group.version == 1:
        limit_file, used_file, peak_file, kills_file = (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "memory.max_usage_in_bytes",
            "memory.oom_control",
        )
    else:
        limit_file, used_file, peak_file, kills_file = "memory.max", "memory.current", "memory.peak", "memory.events"
    limits = [
        limit for directory in group.and_parents() if (limit := parse_limit(_read(directory / limit_file))) is not None
    ]
    return MemoryCounters(
        limit_bytes=min(limits, default=None),
        used_bytes=_number(_read(group.directory / used_file)),
        peak_bytes=_number(_read(group.directory / peak_file)),
        oom_kills=parse_counters(_read(group.directory / kills_file)).get("oom_kill"),
    )


def cpu_counters(group: ControlGroup) -> CpuCounters:
    """Quota and throttling of a cpu control group."""
    counters = parse_counters(_read(group.directory / "cpu.stat"))
    nanoseconds = counters.get("throttled_time") if group.version == 1 else None
    microseconds = counters.get("throttled_usec")
    return CpuCounters(
        quota_cpus=_quota(group),
        periods=counters.get("nr_periods"),
        throttled_periods=counters.get("nr_throttled"),
        throttled_seconds=nanoseconds / 1e9
        if nanoseconds is not None
        else microseconds / 1e6
        if microseconds is not None
        else None,
    )


def oom_counters(group: ControlGroup | None) -> OomCounters:
    """OOM kills so far in a rank's group and on the host: read once before the rank runs and once after it died."""
    memory = (
        memory_counters(group)
        if group is not None
        else MemoryCounters(limit_bytes=None, used_bytes=None, peak_bytes=None, oom_kills=None)
    )
    return OomCounters(
        group_kills=memory.oom_kills,
        host_kills=parse_counters(_read(Path("/proc/vmstat"))).get("oom_kill"),
        limit_bytes=memory.limit_bytes,
        peak_bytes=memory.peak_bytes,
        group=str(group.directory) if group is not None else "",
    )


def parse_limit(text: str) -> int | None:
    """Bytes of memory.max or memory.limit_in_bytes; None for no limit (either version's way to say so) and no file."""
    number = _number(text)
    return None if number is None or number >= _UNLIMITED_V1 else number


def parse_counters(text: str) -> dict[str, int]:
    """`name value` lines, as in memory.events, memory.oom_control, cpu.stat and /proc/vmstat."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _membership_and_mounts(pid: int | str) -> tuple[dict[str, str], tuple[Mount, ...]] | None:
    try:
        membership = parse_membership(Path(f"/proc/{pid}/cgroup").read_text())
        return membership, parse_mounts(Path("/proc/self/mountinfo").read_text())
    except (OSError, ValueError):
        return None


def _within(mount: Mount, path: str) -> ControlGroup:
    # A container may see its own group as the root of the mount, while /proc still names the whole path, or says ".."
    # for what lies above.
    inside = path[len(mount.root) :] if mount.root != "/" and path.startswith(mount.root) else path
    relative = "" if ".." in inside.split("/") else inside.lstrip("/")
    directory = Path(mount.point) / relative
    return ControlGroup(
        directory=directory if directory.is_dir() or not relative else Path(mount.point),
        top=Path(mount.point),
        version=mount.version,
    )


def _quota(group: ControlGroup) -> float | None:
    quotas = []
    for directory in group.and_parents():
        if group.version == 1:
            quota, period = (
                _number(_read(directory / "cpu.cfs_quota_us")),
                _number(_read(directory / "cpu.cfs_period_us")),
            )
        else:
            words = [*_read(directory / "cpu.max").split(), "", ""][:2]
            quota, period = _number(words[0]), _number(words[1])
        if quota and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _unescaped(path: str) -> str:
    return path.replace("\\040", " ")


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
