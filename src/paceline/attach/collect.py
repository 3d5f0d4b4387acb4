"""Looks at the ranks of a job on this host, as an agent of `paceline run` would, and changes nothing. A rank that runs is never stopped.

The ring is missing: the heartbeats are made from the flight recorders in the ranks' memory, from their stacks and their connections.
Every rank's recorder is read in every round, which takes milliseconds; at most 16 ranks are looked at in full.
"""

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from paceline.attach.call_sites import Loop, loops_in, with_loops
from paceline.attach.evidence import HostEvidence, RankSeen, Round
from paceline.attach.heartbeat import MEETING, RankFacts, heartbeat_of
from paceline.attach.jobs import FoundJob
from paceline.attach.rank_numbers import number
from paceline.attach.ranks import FoundRank
from paceline.diagnosis.case import GroupCounters, Heartbeat, StoreSeen
from paceline.diagnosis.flight_recorder import Trace, traces_of
from paceline.diagnosis.hang.wait_graph import DEFAULT_GROUP_NAMES, HOST_RECORDER
from paceline.diagnosis.snapshots import RankSnapshot, Socket
from paceline.diagnosis.stacks import frames_of, has_any
from paceline.launch.agent.exit_reason import last_exception
from paceline.launch.inspect.snapshot import at_once, holds_gil_asleep, look_at, with_native
from paceline.probes.blocking_reads import BoundedReader
from paceline.probes.flight_recorder_memory import read_recorders
from paceline.probes.host_counters import TICKS_PER_SECOND
from paceline.probes.ports import holder_of
from paceline.probes.process_status import namespace
from paceline.probes.processes import read_stat
from paceline.probes.remote_memory import RemoteMemory, Unreadable, torch_release
from paceline.probes.stacks import read_locals
from paceline.probes.tcp_store import StoreAnswer, StoreState, ask_store

ROUNDS = 2
BETWEEN_ROUNDS_SECONDS = 1.5
MOST_LOOKED_AT = 16
# Of a look that is to be over after ten seconds.
LATE_SECONDS = 5.0
# Native stacks stop a rank for up to a second: only of one that has issued nothing for this long.
IDLE_SECONDS = 30.0
_STORE_SECONDS, _SOURCE_SECONDS, _RECORDER_SECONDS, _TAIL_SECONDS = 0.7, 0.5, 2.0, 0.5
_LISTS_KEYS, _RECORDS_BY_DEFAULT = (2, 10), (2, 11)
_SOURCE_BYTES, _TAIL_BYTES = 1 << 20, 1 << 16
_LONGEST_MESSAGE, _LOCALS_SECONDS, _C10D = 200, 1.0, "torch/distributed/distributed_c10d.py"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SEEN = {
    StoreState.ANSWERS: "connected", StoreState.SILENT: "connected", StoreState.REFUSED: "refused", StoreState.TIMED_OUT: "timed out",
}  # fmt: skip
_NOWHERE = Path("/nonexistent")
# torchrun and torch put the rank before each line.
_PREFIX = re.compile(r"^\[\w*rank\d+\]:(?:\[\w+\]:)? ?", re.MULTILINE)


def collect(job: FoundJob, host: str, reader: BoundedReader, *, rounds: int = ROUNDS) -> HostEvidence:
    """Look at the ranks `rounds` times. `host`: what this host is called; `reader`: reads what may block."""
    began = time.monotonic()
    look = _Look(job, host, reader)
    done: list[Round] = []
    for each in range(rounds):
        if each and time.monotonic() - began > LATE_SECONDS:
            look.notes.append("a second look: the first one took too long on this busy machine")
            break
        if each:
            time.sleep(max(0.0, done[-1].at_ns / 1e9 + BETWEEN_ROUNDS_SECONDS - time.time()))
        done.append(look.round())
    done[-1] = look.with_native_stacks(done)
    raised = at_once(
        {rank: partial(_last_raised, found.pid) for rank, found in look.ranks.items()}, _TAIL_SECONDS
    ).values
    seen = []
    for rank, found in sorted(look.ranks.items()):
        trace = look.traces.get(rank)
        seen.append(
            RankSeen(
                rank=rank,
                pid=found.pid,
                entries=trace.entries if trace is not None else (),
                sources=look.sources(rank, done[-1]),
                raised=raised.get(rank, ""),
            )
        )
    return HostEvidence(
        host=host,
        job=job.name,
        launcher=job.launcher,
        launcher_pid=job.launcher_pid,
        world_size=job.world_size,
        # One that ended meanwhile has no process either, and is not on another host.
        missing=tuple(sorted({*job.missing_here, *(job.ranks.keys() - look.ranks.keys())})),
        hosts_wanted=_hosts_wanted(job.ranks.values()),
        restarts=max(
            (number(found.environment.get("TORCHELASTIC_RESTART_COUNT")) or 0 for found in job.ranks.values()),
            default=0,
        ),
        rounds=tuple(done),
        ranks=tuple(seen),
        store=look.store_seen(),
        addresses=_elsewhere(done[-1].snapshots),
        notes=tuple(dict.fromkeys((*job.notes, *look.notes))),
        seconds=time.monotonic() - began,
        clock_ns=time.time_ns(),
        identity=identity_of(job),
    )


def identity_of(job: FoundJob) -> tuple[str, ...]:
    """What the ranks of other hosts of a job share with these; empty: nothing tells it from another job."""
    found = set()
    for rank in job.ranks.values():
        told = rank.environment
        host = (rank.master or "").rpartition(":")[0]
        if host and host not in _LOOPBACK:
            found.add(f"store {rank.master}")
        if (run := told.get("TORCHELASTIC_RUN_ID", "none")) != "none":
            found.add(f"torchrun {run}")
        if "SLURM_JOB_ID" in told:
            found.add(f"Slurm {told['SLURM_JOB_ID']}.{told.get('SLURM_STEP_ID', '')}")
        if jobid := told.get("OMPI_MCA_ess_base_jobid") or told.get("PMIX_NAMESPACE"):
            found.add(f"MPI {jobid}")
    return tuple(sorted(found))


@dataclass(slots=True)
class _Look:
    """The rounds of one look, and what they have found out so far."""

    job: FoundJob
    host: str
    reader: BoundedReader
    ranks: dict[int, FoundRank] = field(init=False)
    """Rank -> its process, as long as it lives."""
    traces: dict[int, Trace] = field(default_factory=dict)
    """Rank -> what its recorders had in the last round."""
    notes: list[str] = field(default_factory=list)
    store: StoreAnswer | None = None
    _loops: dict[tuple[int, str], tuple[Loop, ...] | None] = field(default_factory=dict)
    _releases: dict[int, tuple[int, int] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ranks = dict(self.job.ranks)

    def round(self) -> Round:
        """Read every recorder, look at up to 16 ranks, make the heartbeats."""
        self._leave_out_those_gone()
        self._read_recorders()
        chosen = self._chosen()
        pids = {rank: found.pid for rank, found in self.ranks.items()}
        snapshots, host = look_at(
            {rank: pids[rank] for rank in chosen},
            host=self.host,
            attempt=0,
            role="suspect",
            socket_dir=_NOWHERE,
            hosts_by_address={},
            all_ranks_here=pids,
            stops_nobody=True,
        )
        self._leave_out_those_gone()
        snapshots = [one for one in snapshots if one.rank in self.ranks]
        if self.store is None:
            self._ask_store(snapshots)
        by_rank = {one.rank: self._at_the_rendezvous(one) for one in snapshots}
        at_ns = time.time_ns()
        heartbeats = [self._heartbeat(rank, by_rank.get(rank), at_ns) for rank in self.ranks]
        return Round(at_ns=at_ns, heartbeats=tuple(heartbeats), snapshots=tuple(by_rank.values()), host=host)

    def with_native_stacks(self, rounds: Sequence[Round]) -> Round:
        """The last round, with native stacks of ranks that hold their lock asleep and have not moved for long, in no round."""
        last = rounds[-1]
        moved = {heartbeat.rank: heartbeat.moved_ns for heartbeat in last.heartbeats}
        asked = [
            one.rank
            for one in last.snapshots
            if (last.at_ns - moved[one.rank]) / 1e9 >= IDLE_SECONDS
            and all(holds_gil_asleep(seen) for each in rounds for seen in each.snapshots if seen.rank == one.rank)
        ]
        if not asked:
            return last
        self.notes += [f"rank {rank} was stopped for up to a second, for its native stack" for rank in asked]
        return replace(last, snapshots=tuple(with_native(list(last.snapshots), asked)))

    def sources(self, rank: int, last: Round) -> tuple[str, ...]:
        """What could be read of a rank."""
        snapshot = next((one for one in last.snapshots if one.rank == rank), None)
        has = {"recorder": rank in self.traces, "stacks": snapshot is not None and bool(snapshot.stacks), "proc": True}
        return tuple(name for name, is_there in has.items() if is_there)

    def store_seen(self) -> StoreSeen | None:
        if self.store is None:
            return None
        holder = holder_of(int(self.store.address.rpartition(":")[2]), by_name=True)
        text = ""
        if holder is not None and holder.pid:
            state = read_stat(holder.pid)
            text = f"pid {holder.pid} ({holder.command})" + (f", state {state.state}" if state is not None else "")
        return StoreSeen(
            address=self.store.address, answer=str(self.store.state), joined=self.store.joined, holder=text
        )

    def _leave_out_those_gone(self) -> None:
        for rank, found in list(self.ranks.items()):
            now = read_stat(found.pid)
            if now is None or now.start_ticks != found.start_ticks:
                del self.ranks[rank]
                self.traces.pop(rank, None)
                self.notes.append(f"rank {rank} (pid {found.pid}) ended while it was looked at")

    def _read_recorders(self) -> None:
        jobs = {rank: partial(read_recorders, found.pid, frames=True) for rank, found in self.ranks.items()}
        # All at once: they are compared with each other.
        read = at_once(jobs, _RECORDER_SECONDS)
        self.traces = {}
        for rank, found in self.ranks.items():
            answer = read.values.get(rank)
            reason = answer.reason if answer is not None else read.missing[rank]
            if answer is not None and answer.documents:
                trace = traces_of(answer.documents)
                loops_of = partial(self._loops_of, found)
                self.traces[rank] = replace(trace, entries=with_loops(trace.entries, loops_of))
            elif self._has_none_yet(found, reason):
                self.traces[rank] = Trace()
            else:
                self.notes.append(f"rank {rank}: {reason}")
        self._add_members()

    def _has_none_yet(self, found: FoundRank, reason: str) -> bool:
        """Whether a recorder that is not there means that no collective was issued."""
        release = self._release(found)
        return reason.startswith("no collective") and release is not None and release >= _RECORDS_BY_DEFAULT

    def _release(self, found: FoundRank) -> tuple[int, int] | None:
        if found.pid not in self._releases:
            try:
                self._releases[found.pid] = torch_release(RemoteMemory(found.pid))
            except (Unreadable, OSError):
                self._releases[found.pid] = None
        return self._releases[found.pid]

    def _add_members(self) -> None:
        """gloo does not record the ranks of a group: they are those that have recorded it, if the store knows of no other."""
        inside: dict[str, set[int]] = {}
        for rank, trace in self.traces.items():
            for group in trace.groups:
                inside.setdefault(group.name, set()).add(rank)

        def members(group: GroupCounters) -> tuple[int, ...] | None:
            if group.ranks is not None or group.recorder != HOST_RECORDER or group.name in DEFAULT_GROUP_NAMES:
                return group.ranks
            published = self.store.published(group.name) if self.store is not None else None
            is_whole = published is None or len(published) == len(inside[group.name])
            return tuple(sorted(inside[group.name])) if is_whole else None

        for rank, trace in self.traces.items():
            groups = tuple(replace(group, ranks=members(group)) for group in trace.groups)
            self.traces[rank] = replace(trace, groups=groups)

    def _chosen(self) -> list[int]:
        """The ranks to look at in full: those that have issued nothing for longest, and the newest one for comparison."""

        def newest(rank: int) -> int:
            trace = self.traces.get(rank)
            return max((entry.created_ns or 0 for entry in trace.entries), default=0) if trace is not None else 0

        ordered = sorted(self.ranks, key=newest)
        return ordered if len(ordered) <= MOST_LOOKED_AT else [*ordered[: MOST_LOOKED_AT - 1], ordered[-1]]

    def _loops_of(self, found: FoundRank, file: str) -> tuple[Loop, ...] | None:
        key = found.pid, file
        if key not in self._loops:
            self._loops[key] = self._read_loops(found, file)
        return self._loops[key]

    def _read_loops(self, found: FoundRank, file: str) -> tuple[Loop, ...] | None:
        try:
            changed = self.reader.stat_in_root(found.pid, file, _SOURCE_SECONDS).st_mtime
            source = self.reader.read_in_root(found.pid, file, _SOURCE_BYTES, _SOURCE_SECONDS)
        except OSError:
            return None
        if changed * 1e9 > _started_ns(found):
            self.notes.append(f"{os.path.basename(file)} is newer than the process: its loops are not known")
            return None
        return loops_in(file, source)

    def _ask_store(self, snapshots: Iterable[RankSnapshot]) -> None:
        """Ask the job's store, at an address to which a rank is connected: what a rank says of itself chooses no address."""
        found = next(iter(self.ranks.values()), None)
        port = (found.master or "").rpartition(":")[2] if found is not None else ""
        if found is None or not port.isdigit():
            return
        if namespace(found.pid, "net") != namespace(os.getpid(), "net"):
            self.notes.append("the job's store: it is in another network namespace")
            return
        sockets = [socket for one in snapshots for socket in one.sockets or ()]
        address = next(iter(_addresses_at(port, sockets)), None)
        if address is not None:
            release = self._release(found)
            self.store = ask_store(
                address,
                int(port),
                lists_keys=release is not None and release >= _LISTS_KEYS,
                timeout_seconds=_STORE_SECONDS,
            )
            self._add_members()

    def _at_the_rendezvous(self, snapshot: RankSnapshot) -> RankSnapshot:
        """Of a rank that is meeting the others, what is known of a connection to its store."""
        if has_any(frames_of(snapshot), MEETING) is None:
            return snapshot
        host, _, port = (self.ranks[snapshot.rank].master or "").rpartition(":")
        if self.store is not None and self.store.address.rpartition(":")[2] == port:
            return replace(snapshot, rendezvous_seen=_SEEN.get(self.store.state))
        # Nobody is asked at an address that a rank names: the kernel's table says whether anybody listens there.
        is_here = host in {*_LOOPBACK, os.uname().nodename} and namespace(snapshot.pid, "net") == namespace(
            os.getpid(), "net"
        )
        refused = is_here and port.isdigit() and holder_of(int(port), by_name=True) is None
        return replace(snapshot, rendezvous_seen="refused") if refused else snapshot

    def _heartbeat(self, rank: int, snapshot: RankSnapshot | None, at_ns: int) -> Heartbeat:
        found = self.ranks[rank]
        now = read_stat(found.pid)
        return heartbeat_of(
            RankFacts(
                rank=rank,
                host=self.host,
                at_ns=at_ns,
                started_ns=_started_ns(found),
                cpu_seconds=now.cpu_seconds if now is not None else None,
                trace=self.traces.get(rank),
                snapshot=snapshot,
                peer=_peer_of(snapshot) if snapshot is not None else None,
                state=now.state if now is not None else None,
                environment=found.environment,
            )
        )


_PEERS = ("dst", "src", "group_dst", "group_src")


def _peer_of(snapshot: RankSnapshot) -> tuple[str, int] | None:
    """The send or receive that a rank is in, and the other rank, which is an argument: gloo's recorder does not keep it."""
    inside = next(
        (f.function for f in frames_of(snapshot) if f.function in ("send", "recv") and f.file.endswith(_C10D)), None
    )
    if inside is None:
        return None
    values = read_locals(snapshot.pid, inside, _C10D, _PEERS, timeout_seconds=_LOCALS_SECONDS) or {}
    peer = next((values[name] for name in _PEERS if values.get(name, "").isdigit()), None)
    return (inside, int(peer)) if peer is not None else None


def _addresses_at(port: str, sockets: Iterable[Socket]) -> Iterator[str]:
    """Addresses at which the ranks reach, or offer, this port."""
    for socket in sockets:
        for end in (socket.remote, socket.local):
            address, _, at = end.rpartition(":")
            if at == port and socket.state == "established":
                yield address.strip("[]")


def _elsewhere(snapshots: Iterable[RankSnapshot]) -> tuple[str, ...]:
    """Addresses of other hosts to which the ranks are connected."""
    addresses = {end.remote.rpartition(":")[0].strip("[]") for one in snapshots for end in one.sockets or ()}
    own = {end.local.rpartition(":")[0].strip("[]") for one in snapshots for end in one.sockets or ()}
    return tuple(sorted(addresses - own))


def _hosts_wanted(ranks: Iterable[FoundRank]) -> int | None:
    names = ("GROUP_WORLD_SIZE", "SLURM_NNODES")
    return max(
        (count for found in ranks for name in names if (count := number(found.environment.get(name)))), default=None
    )


def _started_ns(found: FoundRank) -> int:
    with open("/proc/uptime", "rb") as file:
        up_seconds = float(file.read().split()[0])
    return time.time_ns() - int((up_seconds - found.start_ticks / TICKS_PER_SECOND) * 1e9)


def _last_raised(pid: int) -> str:
    """The last exception in the plain file that a process has as its stderr, as "RuntimeError: bad sample at FILE:LINE"; "": none."""
    path = f"/proc/{pid}/fd/2"
    try:
        # Looking at a pipe or a terminal may change it: it is not opened.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        file.seek(max(0, about.st_size - _TAIL_BYTES))
        text = file.read(_TAIL_BYTES).decode(errors="replace")
    error = last_exception(_PREFIX.sub("", text), 0)
    return "" if error is None else f"{error.type}: {error.message[:_LONGEST_MESSAGE]} at {error.file}:{error.line}"
