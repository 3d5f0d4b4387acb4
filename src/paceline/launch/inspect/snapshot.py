"""Takes snapshots of suspects from outside: what each rank and its host do during about half a second.

The ranks' own Python is asked only for one traceback, and a rank need not answer. Two readings give the rates.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from paceline.diagnosis.snapshots import Child, HostSnapshot, RankSnapshot
from paceline.launch.inspect import child_processes, host_snapshot, nccl_ras_answers, rank_snapshot, tcp_sockets
from paceline.probes import filesystems, nccl_ras, stacks
from paceline.probes.other_processes import below, read_processes
from paceline.probes.process_status import namespace
from paceline.probes.processes import ProcessStat
from paceline.probes.worker_server import ask

SECONDS = 0.5
# The longest time of each pass, which a busy host may need. The second pass reads the values that are shown.
_FIRST_SECONDS, _SECOND_SECONDS = 0.45, 1.8
_SERVER_SECONDS = 0.35
_NATIVE_SECONDS = 1.3
# Of both questions to NCCL together: a second.
_RAS_SECONDS = (0.4, 0.6)
# If a rank answers a request for a traceback at all, the answer takes less than this.
_TRACEBACK_SECONDS = 0.1
_MOST_CHILD_STACKS = 24
_IDLE_CORES = 0.1

_Key = tuple[str, int]
_RAS: _Key = ("ras", 0)
_Jobs = dict[_Key, Callable[[], Any]]
_NAMES = {"reading": "state and counters", "setting": "open files, limits and control groups", "stack": "Python stacks"}

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Readings(Generic[K]):
    """The results of several reading jobs."""

    values: dict[K, Any]
    """Job -> its result, if the job ended in time."""
    missing: dict[K, str]
    """Job -> why it has no result."""


def at_once(jobs: Mapping[K, Callable[[], Any]], timeout_seconds: float) -> Readings[K]:
    """Run every job in its own thread, and do not wait for a job that is not done in time.

    Holds:  every key is either in `values` or in `missing`
    """
    values: dict[K, Any] = {}
    missing: dict[K, str] = {}

    def one(key: K, job: Callable[[], Any]) -> None:
        try:
            values[key] = job()
        except Exception as error:
            # If one reading fails, the others go on, and the reason is reported.
            missing[key] = f"{type(error).__name__}: {error}"

    ends_at = time.monotonic() + timeout_seconds
    # Daemon threads: a thread that hangs in the kernel must not prevent the agent from ending.
    threads = [threading.Thread(target=one, args=item, daemon=True, name="paceline-look") for item in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(ends_at - time.monotonic(), 0))
    done, failed = dict(values), dict(missing)
    late = {key: f"no answer within {timeout_seconds:.1f} s" for key in jobs if key not in done and key not in failed}
    return Readings(done, failed | late)


@dataclass(frozen=True, slots=True)
class _Taken:
    """The results of two passes over the same processes."""

    before: Mapping[int, ProcessStat]
    """Process id -> /proc/PID/stat at the beginning, for every process of the host."""
    after: Mapping[int, ProcessStat]
    """Process id -> /proc/PID/stat at the end, for every process of the host."""
    first: Readings[_Key]
    """All other readings at the beginning."""
    second: Readings[_Key]
    """All other readings at the end."""
    children: Mapping[int, tuple[Child, ...]]
    """Rank -> the processes below it that are worth showing."""
    seconds: float
    """Time from the beginning to the end."""


def look_at(
    ranks: Mapping[int, int],
    *,
    host: str,
    attempt: int,
    role: str | Mapping[int, str],
    socket_dir: Path,
    hosts_by_address: Mapping[str, str],
    all_ranks_here: Mapping[int, int],
    deep: bool = False,
    stops_nobody: bool = False,
    directory: Path | None = None,
    seconds: float = SECONDS,
) -> tuple[list[RankSnapshot], HostSnapshot]:
    """Take snapshots of `ranks` (rank -> pid) and of this host. It blocks for a little longer than `seconds`: call it in a thread.

    `all_ranks_here`: every rank of this host, so that no rank counts as a foreign process. `role`: the role of all ranks, or of each
    rank. `directory`: the recording, whose file system is read. `deep`: read native stacks too, which stops each rank for up to a
    second. Without `deep`, native stacks are read only if a sleeping thread seems to hold the GIL; with `stops_nobody`, never.

    Holds:   one RankSnapshot per rank, in the given order, whatever happens to the rank meanwhile
    """
    at_ns = time.time_ns()
    taken = _take(ranks, socket_dir, directory, seconds)
    parts = {rank: _parts(rank, pid, taken) for rank, pid in ranks.items()}
    rates = host_snapshot.disk_rates(taken.first.values.get(("host", 0)), taken.second.values.get(("host", 0)))
    connections = tcp_sockets.sockets_of({rank: part.setting for rank, part in parts.items()}, host, hosts_by_address)
    snapshots = []
    for rank, pid in ranks.items():
        its_role = role if isinstance(role, str) else role.get(rank, "suspect")
        snapshot = rank_snapshot.snapshot_of_rank(
            parts[rank], host=host, rank=rank, pid=pid, at_ns=at_ns, attempt=attempt, role=its_role
        )
        found, reason = connections[rank]
        snapshots.append(
            replace(
                snapshot,
                sockets=found,
                disk_bytes_per_second=rates.get(rank_snapshot.waits_for_disk(parts[rank]) or ""),
                not_judged=snapshot.not_judged + ((reason,) if reason else ()),
            )
        )
    ras = nccl_ras_answers.compared(
        taken.first.values.get(_RAS), taken.second.values.get(_RAS), {*ranks.values(), *all_ranks_here.values()}
    )
    settings = [part.setting for part in parts.values() if part.setting is not None]
    if not stops_nobody:
        snapshots = with_native(snapshots, [one.rank for one in snapshots if deep or holds_gil_asleep(one)])
    return snapshots, host_snapshot.snapshot_of_host(
        (taken.first.values.get(("host", 0)), taken.second.values.get(("host", 0))),
        (taken.before, taken.after),
        host=host,
        at_ns=at_ns,
        attempt=attempt,
        seconds=taken.seconds,
        rank_pids=[*all_ranks_here.values(), *ranks.values()],
        environments=[setting.environment or {} for setting in settings],
        kernel=taken.second.values.get(("kernel", 0)),
        ras=ras.groups,
        rooms=[room for key, rooms in taken.second.values.items() if key[0] == "rooms" for room in rooms],
        missing=[
            *(f"{what}: {why}" for (what, pid), why in taken.second.missing.items() if what in ("kernel", "rooms")),
            *([f"NCCL's RAS service: {ras.reason}"] if ras.reason else []),
        ],
    )


def _take(ranks: Mapping[int, int], socket_dir: Path, directory: Path | None, seconds: float) -> _Taken:
    started = time.monotonic()
    before = read_processes()
    ras = nccl_ras_answers.address_of(ranks.values())
    ask_ras: list[_Jobs] = [{} if ras is None else {_RAS: partial(nccl_ras.read, ras, limit)} for limit in _RAS_SECONDS]
    first = at_once(_first_jobs(ranks, before, socket_dir) | ask_ras[0], _FIRST_SECONDS)
    time.sleep(max(started + seconds - time.monotonic(), 0))
    after = read_processes()
    took = time.monotonic() - started
    children = {
        rank: child_processes.chosen_children(pid, before, after, took) for rank, pid in ranks.items() if pid in after
    }
    jobs = _second_jobs(ranks, after, children)
    began = [after[pid].start_ticks for pid in ranks.values() if pid in after]
    began = began or [after[pid].start_ticks for pid in (os.getpid(),) if pid in after]
    jobs["kernel", 0] = partial(host_snapshot.read_lines, min(began, default=None))
    jobs |= _room_jobs(ranks, directory) | ask_ras[1]
    return _Taken(before, after, first, at_once(jobs, _SECOND_SECONDS), children, took)


def _first_jobs(ranks: Mapping[int, int], processes: Mapping[int, ProcessStat], socket_dir: Path) -> _Jobs:
    jobs: _Jobs = {("host", 0): host_snapshot.read_host}
    for rank, pid in ranks.items():
        answered = threading.Event()
        path = socket_dir / f"{pid}.sock"
        if path.exists():
            jobs["ping", rank] = partial(ask, path, "ping", _SERVER_SECONDS)
            jobs["traceback", rank] = partial(_traceback, path, answered)
        else:
            answered.set()
        jobs["reading", rank] = partial(_reading_after, answered, pid, below([pid], processes))
        jobs["stack", rank] = partial(stacks.dump, pid, timeout_seconds=_FIRST_SECONDS)
    return jobs


def _traceback(path: Path, answered: threading.Event) -> bytes | None:
    try:
        return ask(path, "dump_traceback", _SERVER_SECONDS)
    finally:
        answered.set()


def _reading_after(answered: threading.Event, pid: int, family: Collection[int]) -> rank_snapshot.RankReading:
    # The rank writes its traceback to a file. This I/O must not look like progress of the rank.
    answered.wait(_TRACEBACK_SECONDS)
    return rank_snapshot.read_rank(pid, family)


def _second_jobs(
    ranks: Mapping[int, int], processes: Mapping[int, ProcessStat], children: Mapping[int, tuple[Child, ...]]
) -> _Jobs:
    jobs: _Jobs = {("host", 0): host_snapshot.read_host}
    for rank, pid in ranks.items():
        jobs["reading", rank] = partial(rank_snapshot.read_rank, pid, below([pid], processes))
        jobs["stack", rank] = partial(stacks.dump, pid, timeout_seconds=_SECOND_SECONDS)
        jobs["setting", rank] = partial(rank_snapshot.read_setting, pid)
    inspected = [
        child.pid
        for its in children.values()
        for child in [child for child in its if child_processes.worth_a_stack(child)][: child_processes.MOST_STACKS]
    ]
    for pid in inspected[:_MOST_CHILD_STACKS]:
        jobs["child", pid] = partial(stacks.dump, pid, timeout_seconds=_SECOND_SECONDS)
    return jobs


def _room_jobs(ranks: Mapping[int, int], directory: Path | None) -> _Jobs:
    # One rank for each mount namespace is enough: the ranks of a host nearly always share one namespace.
    by_mounts = {namespace(pid, "mnt"): pid for pid in ranks.values()}
    return {
        ("rooms", pid): partial(filesystems.read_rooms, pid, str(directory) if directory is not None else None)
        for pid in by_mounts.values()
    }


def _parts(rank: int, pid: int, taken: _Taken) -> rank_snapshot.RankParts:
    first, second = taken.first, taken.second
    pinged, traceback = ("ping", rank), ("traceback", rank)
    text = first.values.get(traceback)
    family = below([pid], taken.after) if pid in taken.after else set()
    missing = [f"{_NAMES[what]}: {why}" for (what, of), why in second.missing.items() if of == rank and what in _NAMES]
    children = tuple(
        child_processes.with_stack(child, second.values.get(("child", child.pid)))
        for child in taken.children.get(rank, ())
    )
    if pinged in first.missing:
        missing.append(f"what torch's worker server says: {first.missing[pinged].removeprefix('GateClosed: ')}")
    missing += [
        f"stack of child {child.pid}: {dump.reason}"
        for child in children
        if (dump := second.values.get(("child", child.pid))) is not None and dump.reason
    ]
    return rank_snapshot.RankParts(
        first=first.values.get(("reading", rank)),
        second=second.values.get(("reading", rank)),
        setting=second.values.get(("setting", rank)),
        stacks=(_dump(first, rank), _dump(second, rank)),
        ping=None if pinged not in first.values or not family else first.values[pinged] is not None,
        traceback=stacks.StackDump(threads=stacks.parse_faulthandler(text.decode(errors="replace"), pid))
        if text
        else None,
        traceback_answers=None if traceback not in first.values or not family else text is not None,
        stats=(taken.before.get(pid), taken.after.get(pid)),
        cpu_seconds=child_processes.cpu_seconds(pid, taken.before, taken.after),
        cpu_seconds_so_far=child_processes.cpu_seconds_so_far(pid, taken.after),
        seconds=taken.seconds,
        children=children if family else None,
        missing=tuple(missing),
    )


def _dump(readings: Readings[_Key], rank: int) -> stacks.StackDump:
    key = ("stack", rank)
    found = readings.values.get(key)
    return (
        found
        if isinstance(found, stacks.StackDump)
        else stacks.StackDump(reason=readings.missing.get(key, "not asked"))
    )


def with_native(snapshots: list[RankSnapshot], ranks: Collection[int]) -> list[RankSnapshot]:
    """The snapshots, with native stacks of these ranks, which stops each for up to a second.

    A stopped or blocked process is left out: it would block the reader.
    """
    jobs = {
        snapshot.rank: partial(stacks.dump, snapshot.pid, timeout_seconds=_NATIVE_SECONDS, native=True)
        for snapshot in snapshots
        if snapshot.rank in ranks and snapshot.state in ("R", "S") and not snapshot.frozen
    }
    found = at_once(jobs, _NATIVE_SECONDS + 0.1).values
    return [
        replace(snapshot, native=found[snapshot.rank].native) if snapshot.rank in found else snapshot
        for snapshot in snapshots
    ]


def holds_gil_asleep(snapshot: RankSnapshot) -> bool:
    """Whether a thread of this idle rank seems to hold the interpreter's lock, which native stacks would show."""
    idle = snapshot.cpu_fraction is not None and snapshot.cpu_fraction < _IDLE_CORES
    is_open = snapshot.ping_answers is True and snapshot.traceback_answers is False
    return idle and (is_open or any(stack.owns_gil for stack in snapshot.stacks or ()))
