"""Ranks that wait for each other in a cycle: each in a collective, a send or a receive that the next one has not reached. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.diagnosis.case import Call, Case, GroupCounters, Heartbeat
from paceline.diagnosis.hang.wait_graph import DEFAULT_GROUP_NAMES, HOST_RECORDER, is_pending
from paceline.diagnosis.stacks import frames_of

TO_ONE_PEER = ("send", "recv")
_CALLED_IN = "torch/distributed/distributed_c10d.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One rank waits for others."""

    rank: int
    """The waiting rank."""
    awaited: tuple[int, ...]
    """Ranks that it waits for."""
    group: str | None = None
    """Group of the collective that it waits in."""
    index: int | None = None
    """Number of that collective in the group."""
    call: Call | None = None
    """The send or receive that it waits in, or its newest call."""

    @property
    def is_to_one_peer(self) -> bool:
        return self.group is None


def circle_of_waits(case: Case) -> tuple[Wait, ...]:
    """The shortest cycle, from its lowest rank on; empty if every chain of waits ends."""
    waits = {wait.rank: wait for wait in all_waits(case)}
    found = (circle for rank in sorted(waits) if (circle := _circle_from(rank, waits)))
    return min(found, key=len, default=())


def all_waits(case: Case) -> tuple[Wait, ...]:
    """The wait of every rank that is known to wait for others, also of ranks that are late for another rank."""
    still = case.stall
    if still is None:
        return ()
    found = (wait for rank in sorted({*still.waiting, *still.late}) if (wait := _wait_of(case, rank)) is not None)
    # With several asynchronous calls a rank may not wait for the newest one. If a rank is late, a snapshot has to show it.
    return tuple(wait for wait in found if not (wait.is_to_one_peer and still.late) or is_seen_in_call(case, wait))


def is_seen_in_call(case: Case, wait: Wait) -> bool:
    """Whether the snapshot shows the rank inside this send or receive."""
    snapshot = case.snapshots.get(wait.rank)
    return (
        snapshot is not None
        and wait.call is not None
        and any(
            frame.function == wait.call.operation and frame.file.endswith(_CALLED_IN) for frame in frames_of(snapshot)
        )
    )


def _circle_from(start: int, waits: dict[int, Wait]) -> tuple[Wait, ...]:
    """The shortest path from a rank back to itself."""
    ways: list[tuple[Wait, ...]] = [(waits[start],)]
    seen = {start}
    while ways:
        nearer = []
        for way in ways:
            for rank in way[-1].awaited:
                if rank == start:
                    return way
                if rank in waits and rank not in seen:
                    seen.add(rank)
                    nearer.append((*way, waits[rank]))
        ways = nearer
    return ()


def _wait_of(case: Case, rank: int) -> Wait | None:
    """What a rank waits in, and which ranks have not come; None if it is not known."""
    heartbeat = case.heartbeats.get(rank)
    if heartbeat is None:
        return None
    if is_pending(heartbeat):
        return next(_in_a_collective(case, heartbeat), None) or next(_in_a_message(case, heartbeat), None)
    if (
        not any(beside.groups for beside in case.heartbeats.values())
        and (wait := _in_a_call(case, heartbeat)) is not None
    ):
        return wait
    call = heartbeat.last_call
    # Sends and receives are not in the count of collectives, and the flight recorder does not have them.
    if (
        call is not None
        and call.index == 0
        and call.operation in TO_ONE_PEER
        and call.root is not None
        and heartbeat.phase == "communication"
    ):
        return Wait(rank=rank, awaited=(call.root,), call=call)
    return None


def _in_a_collective(case: Case, heartbeat: Heartbeat) -> Iterator[Wait]:
    for counters in (*heartbeat.exchanges, *(heartbeat.groups or ())):
        if counters.enqueued <= counters.completed:
            continue
        members = _members(case, heartbeat, counters)
        absent = tuple(
            rank
            for rank in members
            if rank != heartbeat.rank
            and (entered := _entered(case, rank, counters)) is not None
            and entered < (counters.enqueued if counters.recorder == HOST_RECORDER else counters.completed + 1)
        )
        absent = absent or _in_another_first(case, heartbeat, counters, members)
        if absent:
            yield Wait(
                rank=heartbeat.rank,
                awaited=absent,
                group=counters.name,
                index=counters.completed + 1,
                call=heartbeat.last_call,
            )


def _in_another_first(
    case: Case, heartbeat: Heartbeat, counters: GroupCounters, members: tuple[int, ...]
) -> tuple[int, ...]:
    """On a device a rank issues a collective and goes on. Members that have issued this one after another one that is not over."""
    if _first_on_device(heartbeat) != (counters.name, counters.recorder):
        return ()
    firsts = {rank: _first_on_device(case.heartbeats[rank]) for rank in members if rank in case.heartbeats}
    return tuple(
        rank for rank, first in firsts.items() if first is not None and first != (counters.name, counters.recorder)
    )


def _first_on_device(heartbeat: Heartbeat) -> tuple[str, str] | None:
    """The group of the collective that this rank has issued first of those that are not over."""
    pending = [
        (counters.open_since_ns, counters.name, counters.recorder)
        for counters in heartbeat.groups or ()
        if counters.enqueued > counters.completed and counters.open_since_ns is not None
    ]
    return min(pending)[1:] if pending else None


def _in_a_message(case: Case, heartbeat: Heartbeat) -> Iterator[Wait]:
    """A send or receive that is not over, by a device's recorder, and that its other end has not issued."""
    call = (
        heartbeat.last_call
        if heartbeat.last_call is not None and heartbeat.last_call.operation in TO_ONE_PEER
        else None
    )
    for counters in heartbeat.groups or ():
        for message in counters.messages:
            (other,) = [rank for rank in message if rank != heartbeat.rank] or [heartbeat.rank]
            beside = case.heartbeats.get(other)
            if beside is not None and beside.groups is not None and message not in _messages(beside, counters):
                yield Wait(rank=heartbeat.rank, awaited=(other,), call=call)


def _messages(heartbeat: Heartbeat, group: GroupCounters) -> set[tuple[int, int]]:
    return {
        message
        for counters in heartbeat.groups or ()
        if (counters.name, counters.recorder) == (group.name, group.recorder)
        for message in counters.messages
    }


def _in_a_call(case: Case, heartbeat: Heartbeat) -> Wait | None:
    """Without a flight recorder, by the calls counted in Python: the only group with this many calls in which a rank has made fewer."""
    call = heartbeat.last_call
    if call is None or call.index == 0 or heartbeat.phase != "communication":
        return None
    found = [
        Wait(rank=heartbeat.rank, awaited=absent, group=name, index=call.index, call=call)
        for name, count in heartbeat.calls.items()
        if count == call.index and (absent := _with_fewer_calls(case, heartbeat, name, count))
    ]
    return found[0] if len(found) == 1 else None


def _with_fewer_calls(case: Case, heartbeat: Heartbeat, group: str, count: int) -> tuple[int, ...]:
    members = _members_by_name(case, heartbeat, group)
    return tuple(
        rank for rank in members if rank in case.heartbeats and case.heartbeats[rank].calls.get(group, 0) < count
    )


def _members(case: Case, heartbeat: Heartbeat, counters: GroupCounters) -> tuple[int, ...]:
    if counters.everybody:
        return tuple(case.heartbeats)
    return counters.ranks or _members_by_name(case, heartbeat, counters.name)


def _members_by_name(case: Case, heartbeat: Heartbeat, group: str) -> tuple[int, ...]:
    return tuple(case.heartbeats) if group in DEFAULT_GROUP_NAMES else heartbeat.group_ranks.get(group, ())


def _entered(case: Case, rank: int, group: GroupCounters) -> int | None:
    """Number of collectives of a group that a rank has entered, by the same recorder; None if it is not known."""
    heartbeat = case.heartbeats.get(rank)
    if heartbeat is None or heartbeat.groups is None:
        return None
    of_group = [
        counters.enqueued
        for counters in (*heartbeat.exchanges, *heartbeat.groups)
        if (counters.name, counters.recorder) == (group.name, group.recorder)
    ]
    return max(of_group, default=0)
