"""Watches the whole job from the coordinator: which ranks wait for which, and whose calls differ. It also finds the causes.

The monitor decides nothing about the job itself. It receives heartbeats and asks hosts for snapshots of suspects. Pure code judges them
(`diagnosis`, `rules/causes`). The monitor records what was seen and found, so that `paceline why` gets the same answer from the
recording.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline import rules
from paceline.diagnosis.build_case import build_case
from paceline.diagnosis.case import Call, Case, Confirmation, Divergence, Heartbeat, Level, Stall, StepTiming
from paceline.diagnosis.clock_offset import OffsetEstimate
from paceline.diagnosis.desync.call_records import recorded_calls
from paceline.diagnosis.desync.calls import CallComparison, RankCalls
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.hang.stall import StallDetector
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.diagnosis.verdict import Diagnosis, diagnose
from paceline.facts import RankExit, RankRecord, Run
from paceline.findings import Cause
from paceline.launch.coordinator.stall_inspection import StallTracker
from paceline.launch.job.messages import (
    HeartbeatMessage,
    Pong,
    SnapshotReply,
    SnapshotRequest,
    StartAttemptMessage,
    TraceReply,
    TraceRequest,
)
from paceline.recording.segments import from_progress
from paceline.recording.shipped import with_own_file

TURN_SECONDS = 0.5
# A snapshot takes half a second, and up to two seconds more on a busy host.
ANSWER_SECONDS = 5.0
MOST_HEARTBEATS = 64
TELEMETRY_LINES = 120
# Enough for the start, join and end of a thousand ranks in several attempts.
EVENTS_KEPT = 10_000
MOST_FAILURES = 16
# Only the newest of these events counts, in the whole job or for each rank or host. They are kept apart from the other events, so that
# they push none of them out in a long run.
_NEWEST_COUNTS = frozenset({"clock", "tempo", "forecast", "look", "host_look"})
# A host's clock is recorded if it is this far from what was recorded, and not only by the error; a clock that drifts, not too often.
CLOCK_MOVED_NS, CLOCK_JUMP_NS, CLOCK_REPEAT_NS = 1_000_000, 100_000_000, 600_000_000_000
_MARKS = frozenset({"replica", "sampler"})
# Longer than two drains of the rings.
_HELD_BACK_NS = 2_500_000_000


def heartbeat_here(heartbeat: Heartbeat, offset_ns: int) -> Heartbeat:
    """The heartbeat with its stamps on this host's clock. `offset_ns` is the other clock minus this clock."""
    return replace(
        heartbeat,
        at_ns=heartbeat.at_ns - offset_ns,
        moved_ns=heartbeat.moved_ns - offset_ns,
        last_step_ns=None if heartbeat.last_step_ns is None else heartbeat.last_step_ns - offset_ns,
        phase_since_ns=None if heartbeat.phase_since_ns is None else heartbeat.phase_since_ns - offset_ns,
        finalizing_ns=None if heartbeat.finalizing_ns is None else heartbeat.finalizing_ns - offset_ns,
        last_call=None if heartbeat.last_call is None else call_here(heartbeat.last_call, offset_ns),
    )


def call_here(call: Call, offset_ns: int) -> Call:
    return replace(call, issued_ns=call.issued_ns - offset_ns)


def calls_here(of_rank: RankCalls, offset_ns: int) -> RankCalls:
    return replace(of_rank, calls=tuple(call_here(call, offset_ns) for call in of_rank.calls))


def entries_here(entries: Iterable[TraceEntry], offset_ns: int) -> tuple[TraceEntry, ...]:
    """Entries of a flight recorder with their stamps on this host's clock. An entry without a stamp stays as it is."""
    if offset_ns == 0:
        return tuple(entries)
    return tuple(
        entry if entry.created_ns is None else replace(entry, created_ns=entry.created_ns - offset_ns)
        for entry in entries
    )


class HostAnswers:
    """The hosts' answers to one request. A host's answer counts only for the host itself."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._missing = set(hosts)
        self._all = asyncio.Event()
        self.snapshots: list[RankSnapshot] = []
        self.hosts: list[HostSnapshot] = []
        self.traces: dict[str, dict[int, list[TraceEntry]]] = {}
        if not self._missing:
            self._all.set()

    def add(self, host: str, reply: SnapshotReply | TraceReply) -> None:
        """Note one host's answer."""
        if isinstance(reply, TraceReply):
            self.traces[host] = reply.traces
        else:
            self.snapshots += [snapshot for snapshot in reply.snapshots if snapshot.host == host]
            self.hosts += [snapshot for snapshot in reply.hosts if snapshot.host == host]
        self._missing.discard(host)
        if not self._missing:
            self._all.set()

    async def wait(self, seconds: float) -> None:
        """Wait until every host has answered, at most this long."""
        try:
            await asyncio.wait_for(self._all.wait(), seconds)
        except TimeoutError:
            return


@dataclass(slots=True)
class HangMonitor:
    """What is known of the current attempt, and the search for ranks that wait and for the reason."""

    run: Run
    """Identity of the run."""
    ask: Callable[[str, SnapshotRequest | TraceRequest], None]
    """Sends one host a request for snapshots or for flight recorders."""
    record: Callable[..., None]
    """Records an event. The event comes back through `noted`."""
    hung: Callable[[Confirmation], None]
    """Called with a confirmed hang."""
    causes: tuple[Cause, ...] = ()
    """The causes that are evaluated; empty: all causes are loaded when they are first needed."""
    placed: dict[int, str] = field(default_factory=dict)
    """Rank -> name of its host."""
    heartbeats: dict[int, Heartbeat] = field(default_factory=dict)
    """Rank -> its newest heartbeat, with stamps on this host's clock."""
    exits: dict[int, RankExit] = field(default_factory=dict)
    """Rank -> how it ended."""
    offsets: dict[str, OffsetEstimate] = field(default_factory=dict)
    """Host -> the estimate of how far its clock is ahead of this host's clock."""
    stall_tracker: StallTracker | None = None
    """The current stall; None: ranks make progress."""
    attempt: int = 0
    """Number of the current attempt, counted from 0."""
    ending: bool = False
    """The ranks were told to end. Their state then says nothing about the failure before."""
    timing: StepTiming | None = None
    """The newest step timing of the attempt, with all ranks; None: there is none yet."""
    _detector: StallDetector = field(default_factory=StallDetector)
    _comparison: CallComparison = field(default_factory=CallComparison)
    _recorded: CallComparison = field(default_factory=CallComparison)
    _recorded_divergences: list[Divergence] = field(default_factory=list)
    _has_diverged: bool = False
    # New facts were recorded since the causes were last evaluated.
    _unjudged: bool = False
    _judging: asyncio.Lock = field(default_factory=asyncio.Lock)
    _events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    _newest: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    _records: dict[int, RankRecord] = field(default_factory=dict)
    _telemetry: dict[str, deque[dict[str, Any]]] = field(default_factory=dict)
    # Host -> the offset that was recorded, and when.
    _clocks: dict[str, tuple[int, int]] = field(default_factory=dict)
    _said: set[tuple[Any, ...]] = field(default_factory=set)
    _failures: set[str] = field(default_factory=set)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, HostAnswers] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------------------- what is heard

    def attempt_started(self, start: StartAttemptMessage) -> None:
        """Begin a new attempt, and forget the previous attempt."""
        self.attempt = start.attempt
        self.placed = {
            rank: placement.host
            for placement in start.placements
            for rank in range(placement.first_rank, placement.first_rank + placement.ranks)
        }
        self.heartbeats.clear()
        self.exits.clear()
        self._records.clear()
        self.stall_tracker, self.ending, self._unjudged, self.timing = None, False, False, None
        self._detector = StallDetector(start.world_size)
        self._comparison = CallComparison(attempt=start.attempt)
        self._recorded_divergences, self._has_diverged = [], False
        self._recorded = CallComparison(basis="flight recorder", attempt=start.attempt)

    def take(self, host: str, message: HeartbeatMessage | SnapshotReply | TraceReply | Pong) -> None:
        """Handle a host's message for this monitor. An error in the message does not cost the host its place in the job."""
        try:
            match message:
                case HeartbeatMessage():
                    self.heard(host, message)
                case Pong():
                    self.clock(host, message.sent_ns, message.at_ns, time.time_ns())
                case _:
                    self.answered(host, message)
        except Exception as error:
            self.say_failed(error)

    def heard(self, host: str, message: HeartbeatMessage) -> None:
        """Take heartbeats and calls of one host, with stamps on that host's clock."""
        offset_ns = self.offset_ns(host)
        for heartbeat in message.heartbeats:
            if heartbeat.attempt == self.attempt and self.placed.get(heartbeat.rank) == host:
                self.heartbeats[heartbeat.rank] = heartbeat_here(heartbeat, offset_ns)
        for of_rank in message.calls:
            if self.placed.get(of_rank.rank) == host:
                self._comparison.add(calls_here(of_rank, offset_ns))

    def answered(self, host: str, message: SnapshotReply | TraceReply) -> None:
        answers = self._waiting.get(message.number)
        if answers is not None:
            answers.add(host, message)

    def exited(self, exit: RankExit) -> None:
        # How a rank was killed may be judged when the next attempt has begun.
        if exit.attempt == self.attempt:
            self.exits[exit.rank] = with_own_file(exit, Path(self.run.directory))

    def noted(self, event: dict[str, Any]) -> None:
        """Take an event of the run. The coordinator passes every event when it is recorded."""
        if event["event"] in _MARKS:
            # Each rank has only a few of these events, even in a long run. Such an event may be the cause by itself.
            mark = event.get(event["event"])
            which = tuple(mark.get(name) for name in ("step", "loader", "turn")) if isinstance(mark, dict) else ()
            self._newest[event["event"], event.get("attempt"), event.get("rank"), which] = event
            self._unjudged = True
        elif event["event"] in _NEWEST_COUNTS:
            self._newest[event["event"], event.get("host"), event.get("rank")] = event
        else:
            self._events.append(event)

    def telemetry(self, host: str, lines: Iterable[dict[str, Any]]) -> None:
        kept = self._telemetry.setdefault(host, deque(maxlen=TELEMETRY_LINES))
        for line in lines:
            kept.append({name: value for name, value in line.items() if name != "progress"})
            # A host's last line comes after its rings were closed, so it has no progress of its ranks.
            for plain in (line.get("progress") or {}).values():
                record = from_progress(plain, host)
                if record is not None and record.attempt == self.attempt:
                    self._records[record.rank] = record

    def clock(self, host: str, sent_ns: int, remote_ns: int, received_ns: int) -> None:
        estimate = self.offsets.setdefault(host, OffsetEstimate())
        estimate.add(sent_ns, remote_ns, received_ns)
        if estimate.offset_ns is None or estimate.round_trip_ns is None:
            return
        offset_ns, error_ns = estimate.offset_ns, estimate.round_trip_ns // 2
        before_ns, at_ns = self._clocks.get(host, (0, -CLOCK_REPEAT_NS))
        moved_ns = abs(offset_ns - before_ns)
        is_due = received_ns - at_ns >= CLOCK_REPEAT_NS or moved_ns > CLOCK_JUMP_NS
        if is_due and moved_ns > max(CLOCK_MOVED_NS, error_ns):
            self._clocks[host] = offset_ns, received_ns
            self.record("clock", host=host, offset_ns=offset_ns, error_ns=error_ns)

    # ------------------------------------------------------------------------------------------------------- what is done

    async def watch(self) -> None:
        """Watch until cancelled. An error in the monitor is recorded and never ends the job."""
        while True:
            await asyncio.sleep(TURN_SECONDS)
            try:
                await self.turn()
            except Exception as error:
                self.say_failed(error)

    async def turn(self) -> None:
        """Compare the ranks' states, take snapshots if the job stands still, and judge new facts."""
        self._record_divergences()
        if self.ending:
            return
        found = self._detector.observe(self._with_exits(), time.time_ns())
        if found is None:
            self._go_on()
        else:
            await self._stand(found)
        if self._unjudged:
            await self.judge(self.case(lasts=True))

    async def take_snapshots(
        self, ranks: Sequence[int], *, deep: bool = False
    ) -> tuple[list[RankSnapshot], list[HostSnapshot]]:
        """Snapshots of these ranks, on all hosts. A host that does not answer in time is left out."""
        by_host: dict[str, list[int]] = {}
        for rank in ranks:
            if rank in self.placed:
                by_host.setdefault(self.placed[rank], []).append(rank)
        number = next(self._numbers)
        answers = await self._asked(
            number, {host: SnapshotRequest(number=number, ranks=wanted, deep=deep) for host, wanted in by_host.items()}
        )
        return (
            [
                replace(snapshot, at_ns=snapshot.at_ns - self.offset_ns(snapshot.host))
                for snapshot in answers.snapshots
                if snapshot.attempt == self.attempt
            ],
            [self._with_clock(host) for host in answers.hosts if host.attempt == self.attempt],
        )

    async def traces(self, *, finished: bool = False) -> dict[int, tuple[TraceEntry, ...]]:
        """The newest entries of every rank's flight recorder, on this host's clock. `finished`: as in TraceRequest."""
        attempt, number = self.attempt, next(self._numbers)
        request = TraceRequest(number=number, finished=finished)
        answers = await self._asked(number, dict.fromkeys(self.placed.values(), request))
        found: dict[int, tuple[TraceEntry, ...]] = {}
        for host, of_ranks in answers.traces.items():
            for rank, entries in of_ranks.items():
                if self.placed.get(rank) == host and self.attempt == attempt:
                    found[rank] = entries_here(entries, self.offset_ns(host))
            # With hundreds of ranks this takes a while. Supervision must go on meanwhile.
            await asyncio.sleep(0)
        return found

    async def _asked(self, number: int, requests: Mapping[str, SnapshotRequest | TraceRequest]) -> HostAnswers:
        answers = self._waiting[number] = HostAnswers(requests)
        try:
            for host, request in requests.items():
                self.ask(host, request)
            await answers.wait(ANSWER_SECONDS)
        finally:
            del self._waiting[number]
        return answers

    def loader_batches(self) -> int | None:
        """Batches of an epoch, according to the ranks' data loaders; None: no data loader has reported it."""
        return max((heartbeat.loader_batches or 0 for heartbeat in self.heartbeats.values()), default=0) or None

    def last_case(self) -> Case | None:
        """The attempt as it ended, with all that its ranks left; None: nothing went wrong in the attempt."""
        try:
            self._record_divergences(final=True)
            failed = any(exit.code for exit in self.exits.values())
            if failed:
                shown = [self.heartbeats[rank] for rank in sorted(self.heartbeats)[:MOST_HEARTBEATS]]
                self.record("last_pulses", attempt=self.attempt, pulses=shown)
            return self.case(lasts=False) if failed or self._unjudged or self.stall_tracker else None
        except Exception as error:
            self.say_failed(error)
            return None

    async def conclude(self, case: Case | None, *, resumed: bool = False) -> None:
        """Judge an attempt that has ended. An error in here never ends the job. `resumed`: another attempt goes on where it ended."""
        try:
            if case is not None:
                await self.judge(case, resumed=resumed)
        except Exception as error:
            self.say_failed(error)

    def case(self, *, lasts: bool) -> Case:
        """All that is known of the attempt now."""
        return build_case(
            self.run,
            events=(*self._events, *self._newest.values()),
            ranks=self._rank_records(),
            hosts=tuple(dict.fromkeys(self.placed.values())),
            telemetry={host: tuple(lines) for host, lines in self._telemetry.items()},
            tails={rank: exit.tail for rank, exit in self.exits.items() if exit.tail},
            now_ns=time.time_ns(),
            lasts=lasts,
            timing=self.timing,
        )

    async def judge(self, case: Case, *, resumed: bool = False) -> Diagnosis:
        """Evaluate every cause, and record each new finding. `resumed`: of an attempt that another one goes on from."""
        try:
            # If the job ends during an evaluation, the last evaluation waits for this one.
            async with self._judging:
                if not self.causes:
                    self.causes = await asyncio.to_thread(rules.all_causes)
                diagnosis = await asyncio.to_thread(diagnose, case, self.causes)
                self._record_findings(case, diagnosis, {"resumed": True} if resumed else {})
                return diagnosis
        finally:
            if case.attempt == self.attempt:
                self._unjudged = False

    def _record_findings(self, case: Case, diagnosis: Diagnosis, more: Mapping[str, Any]) -> None:
        for finding in diagnosis.findings:
            claim = (finding.level, case.attempt, finding.code, finding.ranks, finding.hosts)
            if claim not in self._said:
                self._said.add(claim)
                self.record("cause", attempt=case.attempt, finding=finding, **more)

    def say_failed(self, error: Exception) -> None:
        """Record, once for each kind of error, that a part of the monitor failed. The job itself is not affected."""
        text = f"the search for causes failed, the job goes on: {type(error).__name__}: {error}"
        if text not in self._failures and len(self._failures) < MOST_FAILURES:
            self._failures.add(text)
            self.record("notice", text=text)

    # ---------------------------------------------------------------------------------------------------------------- stalls

    async def _stand(self, found: Stall) -> None:
        """Take snapshots of a stall when they are due, and judge it."""
        loop = asyncio.get_running_loop()
        tracker = self.stall_tracker
        if tracker is None:
            tracker = self.stall_tracker = StallTracker(found, found.late, loop.time())
        elif not tracker.is_due(found, loop.time()):
            return
        # Both run at the same time: a rank that does not answer for its flight recorder would delay the snapshots.
        suspects = tracker.suspects(found, self._with_exits())
        (snapshots, hosts), traces = await asyncio.gather(self.take_snapshots(suspects), self.traces())
        if self.stall_tracker is not tracker or self.ending:
            # The attempt has ended meanwhile, or its ranks are ending.
            return
        await self.compare(traces)
        self._record_divergences()
        is_news = tracker.looked(found, snapshots, loop.time())
        if is_news is None:
            return
        self.record_snapshots(snapshots, hosts)
        judged = tracker.now
        confirmation = tracker.confirmation(self.placed, self.exits, self._detector.cpu.idle_since_ns)
        leaving = self._leaving(tracker.now.late)
        if is_news or tracker.now is not judged or leaving != tracker.leaving:
            self._record_stall(tracker.now)
            tracker.leaving = leaving
        self._unjudged = True
        if confirmation is not None:
            self._confirm(confirmation, is_new=not tracker.is_confirmed)
            tracker.is_confirmed = True

    def _leaving(self, ranks: Iterable[int]) -> frozenset[int]:
        """Those of the ranks whose interpreter is finalizing."""
        return frozenset(
            rank for rank in ranks if rank in self.heartbeats and self.heartbeats[rank].finalizing_ns is not None
        )

    def _confirm(self, confirmation: Confirmation, *, is_new: bool) -> None:
        """Write the evidence to the recording before any action follows from it."""
        if is_new:
            self.record("hang_confirmed", attempt=self.attempt, confirmation=confirmation)
        self.hung(confirmation)

    def _go_on(self) -> None:
        if self.stall_tracker is not None and self.stall_tracker.is_said:
            lasted = (time.time_ns() - self.stall_tracker.now.since_ns) / 1e9
            ended = sorted(rank for rank in self.stall_tracker.now.late if rank in self.exits)
            self.record("standstill_over", attempt=self.attempt, after_seconds=round(lasted, 1), ended=ended)
            self._said = {claim for claim in self._said if claim[0] not in (Level.STALL, Level.WAITING)}
        self.stall_tracker = None

    async def compare(self, traces: Mapping[int, Sequence[TraceEntry]]) -> None:
        """Compare the flight recorders. Only they have the collectives that C++ issues (DDP's buckets, compiled graphs)."""
        comparison = self._recorded
        for rank, entries in traces.items():
            for recorded in recorded_calls(rank, entries):
                comparison.add(recorded)
            await asyncio.sleep(0)

    def _record_divergences(self, *, final: bool = False) -> None:
        now_ns = time.time_ns()
        for mixed in self._comparison.mixed_groups(now_ns):
            self.record("mixed_group", attempt=self.attempt, mixed_group=mixed)
            self._unjudged = True
        called = self._comparison.divergences(now_ns, final=final)
        self._recorded_divergences += self._recorded.divergences(now_ns, final=final)
        if called:
            self._has_diverged = True
        due = [d for d in self._recorded_divergences if final or now_ns - d.found_ns >= _HELD_BACK_NS]
        self._recorded_divergences = [d for d in self._recorded_divergences if d not in due]
        # A difference among the calls from Python is worth more than the same difference here, because it has the call sites.
        tracker = None if self._has_diverged else self.stall_tracker
        for divergence in called if self._has_diverged else due:
            # A recorder has no lines of code: whose call it is shows in the heartbeats, which are needed before the stall is judged.
            beside = {"pulses": self._shown_heartbeats(tracker.now)} if tracker is not None else {}
            self.record("divergence", attempt=self.attempt, divergence=divergence, **beside)
            # Many groups may differ at once, and the heartbeats are the same for all.
            tracker, self._unjudged = None, True

    def _record_stall(self, stall: Stall) -> None:
        stall, heartbeats = replace(stall, attempt=self.attempt), self._shown_heartbeats(stall)
        self.record("standstill", attempt=self.attempt, standstill=stall, pulses=heartbeats)

    def _shown_heartbeats(self, stall: Stall) -> list[Heartbeat]:
        shown = ([*stall.late, *stall.waiting] or sorted(self.heartbeats))[:MOST_HEARTBEATS]
        return [self.heartbeats[rank] for rank in shown if rank in self.heartbeats]

    def record_snapshots(self, snapshots: Iterable[RankSnapshot], hosts: Iterable[HostSnapshot]) -> None:
        """Write the snapshots to the recording, which also passes them to the causes."""
        for snapshot in snapshots:
            role = (
                "witness"
                if self.stall_tracker is not None and snapshot.rank in self.stall_tracker.now.waiting
                else "suspect"
            )
            snapshot = replace(snapshot, role=role)
            self.record("look", host=snapshot.host, rank=snapshot.rank, attempt=self.attempt, look=snapshot)
        for host in hosts:
            self.record("host_look", host=host.host, attempt=self.attempt, look=host)

    # ----------------------------------------------------------------------------------------------------------------- facts

    def _with_exits(self) -> dict[int, Heartbeat]:
        return {
            rank: replace(heartbeat, exit_code=self.exits[rank].code) if rank in self.exits else heartbeat
            for rank, heartbeat in self.heartbeats.items()
        }

    def _rank_records(self) -> list[RankRecord]:
        return [
            replace(
                self._records.get(rank) or RankRecord(host=host, rank=rank, attempt=self.attempt),
                exit=self.exits.get(rank),
            )
            for rank, host in self.placed.items()
        ]

    def offset_ns(self, host: str) -> int:
        """How much the host's clock is ahead of this host's clock; 0 while it is unknown."""
        estimate = self.offsets.get(host)
        return (estimate.offset_ns or 0) if estimate is not None else 0

    def _with_clock(self, snapshot: HostSnapshot) -> HostSnapshot:
        estimate = self.offsets.get(snapshot.host)
        if estimate is None or estimate.offset_ns is None or estimate.round_trip_ns is None:
            return snapshot
        return replace(
            snapshot,
            clock_offset_seconds=estimate.offset_ns / 1e9,
            round_trip_seconds=estimate.round_trip_ns / 1e9,
        )
