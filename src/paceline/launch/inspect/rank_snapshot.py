"""Reads one rank twice and makes a RankSnapshot of both readings."""

import os
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from paceline.diagnosis.snapshots import Child, RankSnapshot, ThreadStack
from paceline.probes import cgroup, process_status
from paceline.probes.process_status import BlockedIn, Descriptors, ProcessLimits, ThreadsStatus
from paceline.probes.processes import MovedBytes, ProcessStat, read_io
from paceline.probes.stacks import StackDump

_MOST_STACKS, _MOST_SLEEPERS = 16, 4
_GPU = re.compile(r"/dev/nvidia(\d+)")
_SHOWN_VARIABLES = (
    "OMP_", "MKL_", "KMP_", "GLOO_", "NCCL_", "TORCH_", "PYTORCH_", "CUDA_", "FI_", "UCX_", "MASTER_", "RANK", "LOCAL_RANK",
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NVIDIA_VISIBLE", "TOKENIZERS_PARALLELISM", "LD_PRELOAD", "TMPDIR", "MALLOC_",
)  # fmt: skip
# A variable whose name has one of our prefixes may still hold a secret.
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReading:
    """A rank's counters at one moment."""

    at: float
    """When the counters were read, in monotonic seconds."""
    threads: ThreadsStatus | None
    """States and context switches of the rank's threads; None: they could not be read."""
    moved: dict[int, MovedBytes]
    """Process id -> bytes read and written so far, of the rank and its descendants. Processes that may not be read are left out."""
    throttling: cgroup.Throttling | None
    """The rank's CPU quota, and how often the quota was used up so far; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSetting:
    """A rank's waits, open files and limits at the end of the snapshot."""

    waiting: BlockedIn
    """What the main thread waits in."""
    sleepers: tuple[BlockedIn, ...]
    """What some of the threads in state D wait in; empty if the freezer holds all threads."""
    descriptors: Descriptors | None
    """The rank's open files; None: they may not be read."""
    limits: ProcessLimits | None
    """The rank's resource limits; None: they could not be read."""
    environment: dict[str, str] | None
    """The environment variables with which the rank was started; None: they may not be read."""
    frozen_by: str | None
    """The file that thaws the rank; empty: the rank is not frozen; None: not known."""
    memory: cgroup.MemoryCounters | None
    """Memory of the rank's control group; None: not known."""
    processes: cgroup.ProcessCounts | None
    """Processes and threads in the rank's pids control group; None: not known."""
    affinity_cpus: int | None
    """Number of CPUs on which the rank may run; None: not known."""
    same_network: bool | None
    """The rank is in the agent's network namespace; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParts:
    """All readings of one rank. A part is None if it was not read in time."""

    first: RankReading | None
    """The counters at the beginning."""
    second: RankReading | None
    """The counters at the end."""
    setting: RankSetting | None
    """The rank's waits, open files and limits."""
    stacks: tuple[StackDump, StackDump]
    """The rank's Python stacks at the beginning and at the end. A dump that was not read has the reason."""
    ping: bool | None
    """Whether torch's worker server in the rank answers a ping."""
    traceback: StackDump | None
    """The Python stacks from the worker server."""
    traceback_answers: bool | None
    """Whether the worker server answers with a traceback."""
    stats: tuple[ProcessStat | None, ProcessStat | None]
    """The rank's /proc/PID/stat at the beginning and at the end; None: the process had ended."""
    cpu_seconds: tuple[float, float] | None
    """CPU time between beginning and end, of the process with its descendants, and of its descendants alone."""
    cpu_seconds_so_far: float | None
    """CPU time of the process and its descendants since the process began."""
    seconds: float
    """Time from the beginning to the end."""
    children: tuple[Child, ...] | None
    """The processes below the rank that are worth showing."""
    missing: tuple[str, ...]
    """Which parts were not read, and why."""


def read_rank(pid: int, family: Collection[int]) -> RankReading:
    """The rank's counters now."""
    group = cgroup.control_group("cpu", pid)
    return RankReading(
        at=time.monotonic(),
        threads=process_status.read_threads(pid),
        moved={one: moved for one in family if (moved := read_io(one)) is not None},
        throttling=cgroup.throttling(group) if group is not None else None,
    )


def read_setting(pid: int) -> RankSetting:
    """The rank's waits, open files and limits now. The call opens no file of the user."""
    descriptors = process_status.read_descriptors(pid)
    targets = descriptors.targets if descriptors is not None else {}
    threads, frozen_by = process_status.read_threads(pid), cgroup.frozen_by(pid)
    # The freezer puts every thread into state D, so the state says nothing about a wait.
    sleeping = () if threads is None or frozen_by else threads.in_disk_sleep[:_MOST_SLEEPERS]
    memory, processes = cgroup.control_group("memory", pid), cgroup.control_group("pids", pid)
    network = process_status.namespace(pid, "net")
    return RankSetting(
        waiting=process_status.read_waiting(pid, targets),
        sleepers=tuple(process_status.read_waiting(pid, targets, thread) for thread in sleeping),
        descriptors=descriptors,
        limits=process_status.read_limits(pid),
        environment=process_status.read_environment(pid),
        frozen_by=frozen_by,
        memory=cgroup.memory_counters(memory) if memory is not None else None,
        processes=cgroup.process_counts(processes) if processes is not None else None,
        affinity_cpus=_affinity(pid),
        same_network=None if network is None else network == process_status.namespace("self", "net"),
    )


def snapshot_of_rank(
    parts: RankParts, *, host: str, rank: int, pid: int, at_ns: int, attempt: int, role: str
) -> RankSnapshot:
    """The RankSnapshot of one rank. The caller adds its sockets and its native stack."""
    setting, before, after = parts.setting, parts.first, parts.second
    threads = (after and after.threads) or (before and before.threads) or None
    frames, moved = _stacks(parts)
    read, written = _rates(before, after)
    switches = _switches(before, after)
    seconds = parts.seconds
    quota = after.throttling if after is not None else None
    return RankSnapshot(
        host=host,
        rank=rank,
        pid=pid,
        at_ns=at_ns,
        attempt=attempt,
        role=role,
        seconds=round(seconds, 3),
        state=_state(threads, parts.stats[1]),
        thread_states=threads.states if threads else {},
        tracer_pid=(threads.main.tracer_pid or None) if threads else None,
        wait_channel=setting.waiting.channel if setting else None,
        system_call=setting.waiting.call if setting else None,
        blocked_on=_blocked_on(setting) if setting else None,
        cpu_fraction=_share(parts.cpu_seconds, 0, seconds),
        children_cpu_fraction=_share(parts.cpu_seconds, 1, seconds),
        read_bytes_per_second=read,
        written_bytes_per_second=written,
        cpu_seconds=parts.cpu_seconds_so_far,
        moved_bytes=sum(moved.read + moved.written for moved in after.moved.values())
        if after and after.moved
        else None,
        voluntary_switches_per_second=switches[0],
        involuntary_switches_per_second=switches[1],
        stacks=frames,
        stack_moved=moved,
        ping_answers=parts.ping,
        traceback_answers=parts.traceback_answers,
        children=parts.children,
        frozen=None if setting is None or setting.frozen_by is None else setting.frozen_by != "",
        frozen_by=(setting.frozen_by or None) if setting else None,
        throttled_fraction=_throttled(before, after),
        cpu_quota_cpus=quota.quota_cpus if quota is not None else None,
        memory_used_bytes=setting.memory.used_bytes if setting and setting.memory else None,
        major_faults_per_second=_major_faults(parts),
        memory_limit_bytes=setting.memory.limit_bytes if setting and setting.memory else None,
        open_files=setting.descriptors.count if setting and setting.descriptors else None,
        open_files_limit=setting.limits.open_files if setting and setting.limits else None,
        process_limit=setting.processes.limit_count if setting and setting.processes else None,
        processes=setting.processes.used_count if setting and setting.processes else None,
        threads=sum(threads.states.values()) if threads else None,
        omp_threads=_omp_threads(setting),
        affinity_cpus=setting.affinity_cpus if setting else None,
        gpus=_gpus(setting.descriptors) if setting and setting.descriptors else None,
        environment=shown_environment(setting.environment or {}) if setting else {},
        not_judged=_not_judged(parts, pid),
    )


def shown_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how training runs, without secrets."""
    return {
        name: value[:200]
        for name, value in sorted(environment.items())
        if name.startswith(_SHOWN_VARIABLES) and not any(word in name for word in _SECRET)
    }


def _stacks(parts: RankParts) -> tuple[tuple[ThreadStack, ...] | None, bool | None]:
    first, last = parts.stacks
    dump = last if last.threads else first if first.threads else parts.traceback
    if dump is None or not dump.threads:
        return None, None
    both = first.main is not None and last.main is not None
    moved = _places(first) != _places(last) if both else None
    ordered = sorted(dump.threads, key=lambda thread: not thread.main)[:_MOST_STACKS]
    return tuple(ordered), moved


def _places(dump: StackDump) -> tuple[tuple[str, str, int], ...]:
    main = dump.main
    return tuple((frame.file, frame.function, frame.line) for frame in main.frames) if main is not None else ()


def _state(threads: ThreadsStatus | None, stat: ProcessStat | None) -> str | None:
    return threads.main.state if threads is not None else stat.state if stat is not None else None


def _blocked_on(setting: RankSetting) -> str | None:
    """What the main thread waits in. If it waits for a thread of its own process that the kernel blocks, what that thread waits in."""
    if setting.waiting.on is not None:
        return setting.waiting.on
    return next((sleeper.on for sleeper in setting.sleepers if sleeper.on and sleeper.on.startswith("/")), None)


def waits_for_disk(parts: RankParts) -> str | None:
    """major:minor of the disk below the path that a thread waits for; None: it waits for none, or it is not known."""
    if parts.setting is None:
        return None
    found = (one.device for one in (parts.setting.waiting, *parts.setting.sleepers) if one.device is not None)
    return next(found, None)


def _rates(before: RankReading | None, after: RankReading | None) -> tuple[float | None, float | None]:
    if before is None or after is None or not before.moved or not after.moved or after.at <= before.at:
        return None, None
    none = MovedBytes(0, 0)
    read = sum(moved.read - before.moved.get(pid, none).read for pid, moved in after.moved.items())
    written = sum(moved.written - before.moved.get(pid, none).written for pid, moved in after.moved.items())
    seconds = after.at - before.at
    return round(max(read, 0) / seconds, 1), round(max(written, 0) / seconds, 1)


def _major_faults(parts: RankParts) -> float | None:
    before, after = parts.stats
    if before is None or after is None or before.start_ticks != after.start_ticks or parts.seconds <= 0:
        return None
    return round((after.major_faults - before.major_faults) / parts.seconds, 1)


def _switches(before: RankReading | None, after: RankReading | None) -> tuple[float | None, float | None]:
    if before is None or after is None or before.threads is None or after.threads is None or after.at <= before.at:
        return None, None
    seconds = after.at - before.at
    voluntary = after.threads.voluntary_switches - before.threads.voluntary_switches
    involuntary = after.threads.involuntary_switches - before.threads.involuntary_switches
    # If a thread ends between the readings, its count is missing in the second reading.
    return round(max(voluntary, 0) / seconds, 1), round(max(involuntary, 0) / seconds, 1)


def _throttled(before: RankReading | None, after: RankReading | None) -> float | None:
    if before is None or after is None or before.throttling is None or after.throttling is None:
        return None
    return round(cgroup.throttled_fraction(before.throttling, after.throttling), 3)


def _share(cpu_seconds: tuple[float, float] | None, which: int, seconds: float) -> float | None:
    return None if cpu_seconds is None or seconds <= 0 else round(cpu_seconds[which] / seconds, 3)


def _gpus(descriptors: Descriptors) -> tuple[int, ...]:
    matches = (_GPU.fullmatch(target) for target in descriptors.targets.values())
    return tuple(sorted({int(match[1]) for match in matches if match}))


def _omp_threads(setting: RankSetting | None) -> int | None:
    text = (setting.environment or {}).get("OMP_NUM_THREADS", "") if setting is not None else ""
    first = text.partition(",")[0].strip()
    return int(first) if first.isdigit() else None


def _affinity(pid: int) -> int | None:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return None


def _not_judged(parts: RankParts, pid: int) -> tuple[str, ...]:
    said = list(parts.missing)
    if parts.stats[1] is None:
        return (*said, f"process {pid} {'is gone' if parts.stats[0] is None else 'ended during the snapshot'}")
    dump = next((dump for dump in reversed(parts.stacks) if dump.reason), None)
    if dump is not None and not any(dump.threads for dump in parts.stacks):
        own_argv = parts.traceback is not None and parts.traceback.threads
        said.append(f"{'whether its stack changes' if own_argv else 'Python stacks'}: {dump.reason}")
    if parts.setting is not None:
        said += [f"what it waits in: {reason}" for reason in parts.setting.waiting.missing]
        if parts.setting.descriptors is None and parts.stats[1].state != "Z":
            said.append("open files and sockets: /proc/PID/fd may not be read")
        if parts.setting.frozen_by is None:
            said.append("the cgroup freezer: it is not mounted here")
    if parts.second is not None and not parts.second.moved and parts.stats[1].state != "Z":
        said.append("bytes read and written: /proc/PID/io may not be read")
    if parts.second is not None and parts.second.threads is not None and not parts.second.threads.whole:
        said.append("switches and states of all threads: there are too many to read each")
    return tuple(dict.fromkeys(said))
