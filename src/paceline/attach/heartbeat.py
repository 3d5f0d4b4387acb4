"""The progress of a rank that keeps no ring: a heartbeat from its flight recorder, its stacks, its connections and its process. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paceline.diagnosis.case import Call, GroupCounters, Heartbeat
from paceline.diagnosis.desync.call_records import PUBLIC_NAMES
from paceline.diagnosis.flight_recorder import Trace, TraceEntry
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import (
    first_users_frame,
    frames_of,
    has_any,
    is_waiting_for_loader,
    is_waiting_in_collective,
    site_of,
)
from paceline.probes.stacks import MOST_FRAMES

MEETING = (
    "torch/distributed/rendezvous.py", "distributed_c10d.py:init_process_group", "distributed_c10d.py:_new_process_group_helper",
    "distributed_c10d.py:_store_based_barrier", "distributed_c10d.py:new_group",
)  # fmt: skip
"""Places in torch at which a rank meets the others, as stacks.has_any takes them."""
_SAVING = ("torch/serialization.py", "torch/distributed/checkpoint/", "safetensors/")
_MAIN = frozenset({"<module>", "_run_code", "_run_module_as_main"})
_AT_REST_CPUS = 0.05
# Of so many calls the longest pause between two says how long a step may take.
_PACE_CALLS, _LEAST_CALLS = 48, 8
# The detector's patience is five steps. Of the longest pause three are enough.
_PAUSE_AS_STEPS = 0.6
_IMPORTING_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What a heartbeat is made of."""

    rank: int
    """Its global rank."""
    host: str
    """Its host."""
    at_ns: int
    """When it was read."""
    started_ns: int
    """When its process was started."""
    cpu_seconds: float | None
    """Used so far; None: not known."""
    trace: Trace | None
    """Its flight recorders; None: they could not be read."""
    snapshot: RankSnapshot | None
    """None: it was not looked at in full."""
    state: str | None
    """As in /proc/PID/stat."""
    peer: tuple[str, int] | None = None
    """The send or receive that its stack is in, and the other rank."""
    environment: Mapping[str, str]
    """Its variables, as far as they are kept."""


def heartbeat_of(facts: RankFacts) -> Heartbeat:
    """The heartbeat. Without a step to count, its pace is that of its collectives."""
    trace, snapshot = facts.trace, facts.snapshot
    entries = trace.entries if trace is not None else ()
    newest = max((entry.created_ns for entry in entries if entry.created_ns), default=None)
    moved_ns = min(
        facts.at_ns,
        newest or _last_traffic_ns(snapshot, facts.at_ns) or facts.started_ns + int(_IMPORTING_SECONDS * 1e9),
    )
    phase = phase_of(snapshot) if snapshot is not None else _phase_by_counters(trace)
    pause = longest_pause(entries)
    return Heartbeat(
        host=facts.host,
        rank=facts.rank,
        at_ns=facts.at_ns,
        moved_ns=moved_ns,
        pid=snapshot.pid if snapshot is not None else None,
        state=facts.state,
        cpu_seconds=facts.cpu_seconds,
        step_count=2 if pause is not None else 0,
        step_seconds=None if pause is None else pause * _PAUSE_AS_STEPS,
        phase=phase,
        phase_since_ns=moved_ns,
        last_call=_to_a_peer(facts) or _last_call(entries),
        group_ranks={group.name: group.ranks for group in _groups(trace) if group.ranks},
        groups=trace.groups if trace is not None else None,
        finalizing_ns=moved_ns if snapshot is not None and _leaves(snapshot) else None,
        rendezvous=_brought(facts) if phase == "rendezvous" else {},
    )


def phase_of(snapshot: RankSnapshot) -> str:
    """What a rank does, in the words of a ring, by its stack; without a stack by what the kernel says."""
    frames = frames_of(snapshot)
    if not frames:
        # A wait for a collective is one for a lock, in the kernel's eyes; a sleep, a read or a loader is not.
        rests = snapshot.state == "S" and (snapshot.cpu_fraction or 0.0) < _AT_REST_CPUS
        return "communication" if rests and "futex" in (snapshot.wait_channel or "") else "training"
    if has_any(frames, MEETING) is not None:
        return "rendezvous"
    if is_waiting_for_loader(snapshot):
        return "data"
    if has_any(frames, _SAVING) is not None:
        return "checkpoint"
    return "communication" if is_waiting_in_collective(snapshot) else "training"


def longest_pause(entries: Sequence[TraceEntry]) -> float | None:
    """Seconds between two of the newest collectives, the most that there were; None: too few to say."""
    stamps = [entry.created_ns for entry in entries if entry.created_ns][-_PACE_CALLS:]
    pauses = [(after - before) / 1e9 for before, after in pairwise(stamps)]
    return max(pauses) if len(pauses) >= _LEAST_CALLS else None


def _groups(trace: Trace | None) -> tuple[GroupCounters, ...]:
    return trace.groups if trace is not None else ()


def _phase_by_counters(trace: Trace | None) -> str:
    return "communication" if any(not group.is_over for group in _groups(trace)) else "training"


def _leaves(snapshot: RankSnapshot) -> bool:
    """Whether the main thread is behind the end of its program: an exit handler has no frame of a module below it."""
    frames = frames_of(snapshot)
    if len(frames) >= MOST_FRAMES:
        # Its outermost frames were not read.
        return False
    # While it waits for a thread of the script, that thread may train.
    is_joining = has_any(frames, ("threading.py:_shutdown",)) is not None
    return bool(frames) and not is_joining and not any(frame.function in _MAIN for frame in frames)


def _last_call(entries: Sequence[TraceEntry]) -> Call | None:
    if not entries:
        return None
    newest = entries[-1]
    return Call(
        index=newest.index,
        operation=PUBLIC_NAMES.get(newest.operation, newest.operation),
        issued_ns=newest.created_ns or 0,
        site=newest.site,
    )


def _to_a_peer(facts: RankFacts) -> Call | None:
    """The send or receive that its stack is in: gloo's recorder does not say with which rank."""
    if facts.peer is None or facts.snapshot is None:
        return None
    operation, peer = facts.peer
    users = first_users_frame(frames_of(facts.snapshot))
    site = site_of(users) if users is not None else None
    return Call(index=0, operation=operation, issued_ns=facts.at_ns, root=peer, site=site)


def _last_traffic_ns(snapshot: RankSnapshot | None, at_ns: int) -> int | None:
    """When data last moved on a connection of the rank."""
    ages = [
        age
        for socket in (snapshot.sockets or () if snapshot is not None else ())
        for age in (socket.last_sent_ms, socket.last_received_ms)
        if age is not None and (socket.sent_bytes or 0) + (socket.received_bytes or 0) > 0
    ]
    return at_ns - min(ages) * 1_000_000 if ages else None


def _brought(facts: RankFacts) -> dict[str, str]:
    """What it brings to the rendezvous, under the names of diagnosis.crash.rendezvous."""
    told = facts.environment
    found = {"rank": str(facts.rank)}
    if told.get("WORLD_SIZE"):
        found["world_size"] = told["WORLD_SIZE"]
    return found | {name: told[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in told}
