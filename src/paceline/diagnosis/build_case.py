"""Builds a case from a run's recording: its events become typed facts. Pure; a live job and a recording use the same code."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from paceline.diagnosis.case import (
    Attached,
    Case,
    Confirmation,
    DataSampler,
    Divergence,
    Forecast,
    Heartbeat,
    MixedGroup,
    Replica,
    Stall,
    StepTiming,
)
from paceline.diagnosis.crash.root_cause import with_early_ends
from paceline.diagnosis.hang.wait_graph import with_known_numbers
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.facts import Evidence, RankExit, RankRecord, Run
from paceline.recording.fact_json import from_plain
from paceline.spelling import plural

T = TypeVar("T")
Event = Mapping[str, Any]


def case_of(
    evidence: Evidence,
    *,
    now_ns: int,
    lasts: bool,
    tails: Mapping[int, str] | None = None,
) -> Case:
    """The case of a recording, complete or partial. The case's `not_judged` lists what was lost."""
    return build_case(
        evidence.run,
        events=evidence.events,
        ranks=evidence.ranks,
        hosts=evidence.hosts,
        telemetry=evidence.telemetry,
        tails=tails,
        now_ns=now_ns,
        lasts=lasts,
        not_judged=evidence.not_judged,
    )


def build_case(
    run: Run,
    *,
    events: Iterable[Event],
    ranks: Iterable[RankRecord],
    hosts: Iterable[str],
    telemetry: Mapping[str, Sequence[Event]],
    now_ns: int,
    lasts: bool,
    tails: Mapping[int, str] | None = None,
    not_judged: Iterable[str] = (),
    attempt: int | None = None,
    timing: StepTiming | None = None,
) -> Case:
    """One attempt of a run as the rules see it; the newest, unless one is named. `timing`: of the newest attempt, in place of its events'.

    Holds:   never raises because of an event: a malformed event is named in `not_judged`, and the rest is judged without it
    """
    events, ranks = tuple(events), tuple(ranks)
    chosen = _newest_attempt(events, ranks) if attempt is None else attempt
    reader = _Reader(events, chosen)
    stall, heartbeats = reader.stall()
    exits = _exits(reader, ranks, chosen)
    looked_since = stall.since_ns if stall is not None else 0
    return Case(
        run=run,
        now_ns=now_ns,
        lasts=lasts,
        attempt=chosen,
        world_size=_world_size(events, ranks, chosen),
        hosts=tuple(hosts),
        ranks=_records(ranks, chosen),
        exits=with_early_ends(exits, stall.late if stall is not None else ()),
        heartbeats=heartbeats or reader.heartbeats_beside_a_stall(),
        stall=stall,
        confirmation=reader.confirmation(),
        divergences=reader.all("divergence", Divergence),
        mixed_groups=reader.all("mixed_group", MixedGroup),
        replicas=reader.replicas(),
        samplers=reader.samplers(),
        snapshots={
            rank: snapshot
            for rank, snapshot in reader.newest_of("look", RankSnapshot, "rank")
            if snapshot.at_ns >= looked_since
        },
        host_snapshots=dict(reader.newest_of("host_look", HostSnapshot, "host")),
        timing=timing if timing is not None and timing.attempt == chosen else reader.newest("tempo", StepTiming),
        forecast=reader.newest("forecast", Forecast),
        tails={exit.rank: exit.tail for exit in exits if exit.tail} | dict(tails or {}),
        attached={one.host: one for one in reader.all("attached", Attached)},
        missing_hosts=_missing_hosts(events),
        events=events,
        telemetry={host: tuple(lines) for host, lines in telemetry.items()},
        not_judged=(*not_judged, *reader.malformed()),
    )


@dataclass(slots=True)
class _Reader:
    """The typed facts of one attempt's events."""

    events: Sequence[Event]
    """Events of the run."""
    attempt: int
    """Number of the attempt."""
    bad: dict[str, list[str]] = field(default_factory=dict)
    """Kind of event -> what was wrong with the events that could not be read."""

    def all(self, name: str, kind: type[T]) -> tuple[T, ...]:
        facts = (self._fact(event, kind, name) for event in self.events if event.get("event") == name)
        return tuple(fact for fact in facts if fact is not None)

    def newest_of(self, name: str, kind: type[T], whose: str) -> Iterator[tuple[Any, T]]:
        """The newest snapshot of each rank or host. A long run has thousands of older ones, which are not decoded."""
        seen: set[Any] = set()
        for event in reversed(self.events):
            said = event.get(whose)
            if event.get("event") != name or (isinstance(said, int | str) and said in seen):
                continue
            snapshot = self._fact(event, kind, "look")
            if snapshot is not None and (key := getattr(snapshot, whose)) not in seen:
                seen.add(key)
                yield key, snapshot

    def newest(self, name: str, kind: type[T]) -> T | None:
        of_this_kind = (event for event in reversed(self.events) if event.get("event") == name)
        facts = (self._fact(event, kind, name) for event in of_this_kind)
        return next((fact for fact in facts if fact is not None), None)

    def replicas(self) -> dict[int, tuple[Replica, ...]]:
        """Rank -> its marks in the order of steps."""
        found: dict[int, dict[int, Replica]] = {}
        for event, mark in self._marks("replica"):
            replica = self._taken(event, Replica, mark and {**mark, "rank": event.get("rank"), "attempt": self.attempt})
            if replica is not None:
                found.setdefault(replica.rank, {})[replica.step] = replica
        return {rank: tuple(marks[step] for step in sorted(marks)) for rank, marks in sorted(found.items())}

    def samplers(self) -> tuple[DataSampler, ...]:
        """The samplers of each rank, in the order in which its epochs began."""
        found = (
            self._taken(event, DataSampler, mark and {**mark, "rank": event.get("rank"), "shard": mark.get("rank")})
            for event, mark in self._marks("sampler")
        )
        return tuple(sampler for sampler in found if sampler is not None)

    def _marks(self, name: str) -> Iterator[tuple[Event, Event | None]]:
        """The events of this name, each with its mark; None if the mark is malformed."""
        for event in self.events:
            if event.get("event") == name and event.get("attempt", 0) == self.attempt:
                mark = event.get(name)
                yield event, mark if isinstance(mark, Mapping) else None

    def stall(self) -> tuple[Stall | None, dict[int, Heartbeat]]:
        """The stall that lasts, or lasted when the run ended, with the ranks' heartbeats at the time."""
        for event in reversed(self.events):
            if event.get("event") in ("standstill_over", "attempt_started"):
                return None, {}
            if event.get("event") == "standstill":
                stall = self._fact(event, Stall, "standstill")
                if stall is not None:
                    return stall, with_known_numbers(
                        {heartbeat.rank: heartbeat for heartbeat in self._heartbeats(event)}
                    )
        return None, {}

    def confirmation(self) -> Confirmation | None:
        """The confirmation of the stall that lasts, or lasted when the run ended."""
        for event in reversed(self.events):
            if event.get("event") in ("standstill_over", "attempt_started"):
                return None
            if event.get("event") == "hang_confirmed":
                return self._fact(event, Confirmation, "confirmation")
        return None

    def heartbeats_beside_a_stall(self) -> dict[int, Heartbeat]:
        """The ranks' heartbeats at the end of the attempt, or in a stall with a divergence that was found before it was judged."""
        for event in reversed(self.events):
            if event.get("event") in ("standstill_over", "attempt_started"):
                break
            if event.get("event") in ("last_pulses", "divergence") and event.get("pulses"):
                return with_known_numbers({heartbeat.rank: heartbeat for heartbeat in self._heartbeats(event)})
        return {}

    def exits(self) -> list[RankExit]:
        found = [self._taken(event, RankExit, event) for event in self.events if event.get("event") == "rank_exited"]
        return [exit for exit in found if exit is not None and exit.attempt == self.attempt]

    def malformed(self) -> tuple[str, ...]:
        return tuple(
            f"{len(reasons)} {name} {plural(len(reasons), 'event')} in the recording cannot be read: {reasons[0]}"
            for name, reasons in self.bad.items()
        )

    def _heartbeats(self, event: Event) -> Iterable[Heartbeat]:
        plain = event.get("pulses")
        found = (self._taken(event, Heartbeat, part) for part in (plain if isinstance(plain, (list, tuple)) else ()))
        return (heartbeat for heartbeat in found if heartbeat is not None and heartbeat.attempt == self.attempt)

    def _fact(self, event: Event, kind: type[T], key: str) -> T | None:
        fact = self._taken(event, kind, event.get(key))
        return fact if fact is not None and getattr(fact, "attempt", self.attempt) == self.attempt else None

    def _taken(self, event: Event, kind: type[T], plain: Any) -> T | None:
        try:
            return from_plain(kind, plain)
        except msgspec.ValidationError as error:
            self.bad.setdefault(str(event.get("event")), []).append(str(error))
            return None


def _newest_attempt(events: Sequence[Event], ranks: Sequence[RankRecord]) -> int:
    started = (_number(event, "attempt") for event in events if event.get("event") == "attempt_started")
    return max((*(number for number in started if number is not None), *(rank.attempt for rank in ranks)), default=0)


def _records(ranks: Iterable[RankRecord], attempt: int) -> dict[int, RankRecord]:
    """Rank -> its record. If two hosts claim a rank, the record with more steps counts."""
    records: dict[int, RankRecord] = {}
    for record in ranks:
        if record.attempt != attempt:
            continue
        if record.rank not in records or (record.step_count or 0) > (records[record.rank].step_count or 0):
            records[record.rank] = record
    return dict(sorted(records.items()))


def _exits(reader: _Reader, ranks: Iterable[RankRecord], attempt: int) -> tuple[RankExit, ...]:
    """The end of each rank, from its record or, if the record has none, from its event."""
    ends = {(exit.rank, exit.host): exit for exit in reader.exits()}
    for record in ranks:
        if record.attempt == attempt and record.exit is not None:
            ends[record.rank, record.host] = record.exit
    return tuple(ends.values())


def _world_size(events: Sequence[Event], ranks: Iterable[RankRecord], attempt: int) -> int | None:
    for event in reversed(events):
        if event.get("event") == "attempt_started" and event.get("attempt") == attempt:
            if (size := _number(event, "world_size")) is not None:
                return size
    return next((rank.world_size for rank in ranks if rank.attempt == attempt and rank.world_size), None)


def _missing_hosts(events: Sequence[Event]) -> tuple[Event, ...]:
    """The launcher's last report about hosts that it waits for; nothing once the job has formed."""
    for event in reversed(events):
        if event.get("event") == "attempt_started":
            return ()
        if event.get("event") == "waiting":
            missing = event.get("missing")
            entries = missing if isinstance(missing, (list, tuple)) else ()
            return tuple(entry for entry in entries if isinstance(entry, Mapping))
    return ()


def _number(event: Event, name: str) -> int | None:
    value = event.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
