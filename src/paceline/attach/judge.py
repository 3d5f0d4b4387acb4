"""Judges what the hosts of a job have seen, by the rules of every run. Pure: the same for a job that lasts and for evidence that was kept.

The hosts' rounds are taken as a run takes heartbeats and snapshots, and become the events of a recording.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.attach.evidence import HostEvidence
from paceline.diagnosis.build_case import build_case
from paceline.diagnosis.case import Attached, Case, Confirmation, Divergence, Heartbeat, Stall
from paceline.diagnosis.desync.call_records import recorded_calls
from paceline.diagnosis.desync.calls import CallComparison
from paceline.diagnosis.hang.stall import StallDetector
from paceline.diagnosis.verdict import Diagnosis, diagnose
from paceline.facts import RankRecord, Run
from paceline.findings import Cause
from paceline.launch.coordinator.stall_inspection import StallTracker
from paceline.recording.fact_json import to_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The answer for one job."""

    case: Case
    """The facts."""
    diagnosis: Diagnosis
    """What was found."""
    moves: bool
    """Collectives were completed between the rounds."""
    events: tuple[dict[str, Any], ...]
    """The same as a recording has it."""


def judge(hosts: Sequence[HostEvidence], run: Run, causes: Sequence[Cause]) -> Judged:
    """Judge a job by what one or more of its hosts have seen. `run`: its identity in the answer."""
    size = max((one.world_size for one in hosts if one.world_size), default=None)
    seen = {rank.rank for one in hosts for rank in one.ranks}
    gone = {rank for one in hosts for rank in one.missing} - seen
    unseen = set(range(size or 0)) - seen - gone
    # A rank of a host that was not looked at is not late.
    stall, confirmation = _stall(hosts, None if unseen else size, seen, gone)
    now_ns = max(one.rounds[-1].at_ns for one in hosts)
    divergences = _divergences(hosts, now_ns)
    events = tuple(_events(hosts, size, stall, confirmation, divergences, now_ns))
    records = [
        RankRecord(host=one.host, rank=rank.rank, attempt=0, pid=rank.pid, world_size=size)
        for one in hosts
        for rank in one.ranks
    ]
    case = build_case(
        run,
        events=events,
        ranks=records,
        hosts=[one.host for one in hosts],
        telemetry={},
        now_ns=now_ns,
        lasts=True,
        not_judged=[f"{one.host}: {note}" if len(hosts) > 1 else note for one in hosts for note in one.notes],
    )
    return Judged(case=case, diagnosis=diagnose(case, causes), moves=_moves(hosts), events=events)


def _stall(
    hosts: Sequence[HostEvidence], size: int | None, seen: set[int], gone: set[int]
) -> tuple[Stall | None, Confirmation | None]:
    """The stall that all rounds show, and why it is a hang."""
    detector = StallDetector(size)
    tracker: StallTracker | None = None
    for number in range(min(len(one.rounds) for one in hosts)):
        rounds = [one.rounds[number] for one in hosts]
        now_ns = max(one.at_ns for one in rounds)
        found = detector.observe({heartbeat.rank: heartbeat for one in rounds for heartbeat in one.heartbeats}, now_ns)
        if found is None:
            tracker = None
            continue
        # Everything is inspected each time: there is no first suspicion to be confirmed.
        tracker = tracker or StallTracker(found, found.late, now_ns / 1e9)
        tracker.looked(found, [snapshot for one in rounds for snapshot in one.snapshots], now_ns / 1e9)
        tracker.now = tracker.now if tracker.snapshots else found
    if tracker is None:
        return None, None
    confirmation = tracker.confirmation(seen, gone, detector.cpu.idle_since_ns) if tracker.snapshots else None
    return tracker.now, confirmation


def _moves(hosts: Iterable[HostEvidence]) -> bool:
    """Whether a rank has completed a collective between the first round and the last."""
    for one in hosts:
        before = {heartbeat.rank: _completed(heartbeat) for heartbeat in one.rounds[0].heartbeats}
        for heartbeat in one.rounds[-1].heartbeats:
            then = before.get(heartbeat.rank, {})
            if any(count > then.get(group, count) for group, count in _completed(heartbeat).items()):
                return True
    return False


def _completed(heartbeat: Heartbeat) -> Mapping[tuple[str, str], int]:
    return {(group.name, group.recorder): group.completed for group in heartbeat.groups or ()}


def _divergences(hosts: Iterable[HostEvidence], now_ns: int) -> tuple[Divergence, ...]:
    """Ranks whose recorders have different collectives at the same place."""
    comparison = CallComparison(basis="flight recorder")
    for one in hosts:
        for rank in one.ranks:
            for calls in recorded_calls(rank.rank, rank.entries):
                comparison.add(calls)
    return comparison.divergences(now_ns, final=True)


def _events(
    hosts: Sequence[HostEvidence],
    size: int | None,
    stall: Stall | None,
    confirmation: Confirmation | None,
    divergences: Iterable[Divergence],
    now_ns: int,
) -> Iterator[dict[str, Any]]:
    yield {"t_ns": now_ns, "event": "attempt_started", "attempt": 0, "world_size": size}
    heartbeats = []
    for one in hosts:
        about = {"host": one.host, "attempt": 0}
        last = one.rounds[-1]
        for rank in one.ranks:
            yield {"t_ns": now_ns, "event": "rank_started", **about, "rank": rank.rank, "pid": rank.pid}
        for snapshot in last.snapshots:
            yield {"t_ns": snapshot.at_ns, "event": "look", **about, "rank": snapshot.rank, "look": to_plain(snapshot)}
        yield {"t_ns": last.host.at_ns, "event": "host_look", **about, "look": to_plain(last.host)}
        yield {"t_ns": now_ns, "event": "attached", **about, "attached": to_plain(_attached(one))}
        # Nobody has counted its steps.
        heartbeats += [to_plain(replace(beat, step_count=None, step_seconds=None)) for beat in last.heartbeats]
    for divergence in divergences:
        yield {"t_ns": now_ns, "event": "divergence", "attempt": 0, "divergence": to_plain(divergence)}
    if stall is None:
        yield {"t_ns": now_ns, "event": "last_pulses", "attempt": 0, "pulses": heartbeats}
        return
    plain = to_plain(replace(stall, since_step=None))
    yield {"t_ns": now_ns, "event": "standstill", "attempt": 0, "standstill": plain, "pulses": heartbeats}
    if confirmation is not None:
        yield {"t_ns": now_ns, "event": "hang_confirmed", "attempt": 0, "confirmation": to_plain(confirmation)}


def _attached(one: HostEvidence) -> Attached:
    return Attached(
        host=one.host,
        launcher=one.launcher,
        launcher_pid=one.launcher_pid,
        missing=one.missing,
        restarts=one.restarts,
        store=one.store,
        addresses=one.addresses,
        hosts_wanted=one.hosts_wanted,
        raised={rank.rank: rank.raised for rank in one.ranks if rank.raised},
    )
