"""Which ranks wait for which: idle ranks compared within the groups that they share. Pure, one pass over the ranks of each group.

A rank waits if it has entered a call that is not over. It is late if others wait in a group for a call that it has not
made. Late ranks that wait for another rank are left out: the rank at the end of the chain delays all.

Calls that run on a device are over when the device says so, so a rank may also be late because its device is behind, or all ranks may have
come to a call that does not end: see `wait_chains`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from paceline.diagnosis.case import GroupCounters, Heartbeat
from paceline.diagnosis.hang.wait_chains import Chains, Delay, GroupProgress, follow_chains, messages_as_groups

FLIGHT_RECORDER, EXCHANGES, CALLS, PHASE, STACKS, STEPS, START = (
    "flight recorder", "exchanges", "calls", "phase", "stacks", "steps", "start"
)  # fmt: skip
# The most certain first. By "steps" no rank is seen to wait.
BASES = (EXCHANGES, FLIGHT_RECORDER, CALLS, PHASE, STACKS, STEPS, START)
# All others have calls that run on a device.
HOST_RECORDER, ON_DEVICE = "gloo", "nccl"
DEFAULT_GROUP_NAMES = frozenset({"0", "default_pg", ""})
_CANNOT_ANSWER = frozenset("TtDZ")
_HALTED = frozenset("TtZ")


@dataclass(frozen=True, slots=True)
class Waits:
    """The result of comparing the ranks."""

    waiting: tuple[int, ...]
    """Ranks that wait."""
    late: tuple[int, ...]
    """Ranks that they wait for; empty: all have come, or it is not known which have not."""
    basis: str
    """What the comparison rests on."""
    group: str | None = None
    """Group of the collective that they wait in."""
    index: int | None = None
    """Number of that collective in the group."""
    crossed: tuple[int, ...] = ()
    """Ranks that others wait for and that wait themselves, so that none of them is at the end of a chain."""
    recorder: str = ""
    """Of a flight recorder: which one, as in GroupCounters."""
    behind: tuple[int, ...] = ()
    """Of `late`, ranks that have come, and whose device has not."""
    together: bool = False
    """All ranks of the group have come, and none of them waits for another rank elsewhere."""


@dataclass(slots=True)
class _Group:
    """One process group, as far as its members reported it."""

    name: str
    """Name of the group."""
    members: frozenset[int] | None
    """Its ranks; None: not known."""
    entered: dict[int, int] = field(default_factory=dict)
    """Rank -> calls begun."""
    done: dict[int, int] = field(default_factory=dict)
    """Rank -> calls completed."""


def is_pending(heartbeat: Heartbeat) -> bool:
    """Whether the flight recorder or the ring shows a collective that this rank has entered and that is not over."""
    return any(not group.is_over for group in (*(heartbeat.groups or ()), *heartbeat.exchanges))


def is_in_a_wait(heartbeat: Heartbeat) -> bool:
    """Whether the rank's own data show that it waits for others: in a collective, a receive, or at the rendezvous.

    A stopped or frozen rank does not wait for ranks, wherever it is.
    """
    return not is_halted(heartbeat) and (is_pending(heartbeat) or heartbeat.phase in ("communication", "rendezvous"))


def is_halted(heartbeat: Heartbeat) -> bool:
    """Whether the process is stopped, traced or dead, or frozen: in an uninterruptible call, and no thread of it answers."""
    return (heartbeat.state or "") in _HALTED or (heartbeat.state == "D" and heartbeat.groups is None)


def cannot_answer(heartbeat: Heartbeat) -> bool:
    """Whether the process is stopped, traced, dead or in an uninterruptible call."""
    return (heartbeat.state or "") in _CANNOT_ANSWER


def with_what_is_over(live: Mapping[int, Heartbeat]) -> dict[int, Heartbeat]:
    """The heartbeats, without exchanges that only seem to be incomplete.

    A rank may need its Python to notice that an exchange is over. A stopped rank, or one whose interpreter's lock is held, cannot.
    An exchange that is over on all other ranks delays none.
    """
    rows: dict[tuple[str, int, int], dict[int, int]] = {}
    for rank, heartbeat in live.items():
        for c in heartbeat.exchanges:
            if not cannot_answer(heartbeat):
                rows.setdefault(_group_key(c), {})[rank] = c.completed
    found = dict(live)
    for rank, heartbeat in live.items():
        if any(c.enqueued > c.completed for c in heartbeat.exchanges):
            settled = tuple(_settled(c, rank, rows.get(_group_key(c), {})) for c in heartbeat.exchanges)
            if settled != heartbeat.exchanges:
                found[rank] = replace(heartbeat, exchanges=settled)
    return found


def with_known_numbers(heartbeats: Mapping[int, Heartbeat]) -> dict[int, Heartbeat]:
    """The heartbeats, with numbers of collectives where a recorder counts operations, sends and calls of another backend among them.

    A rank on which a collective is not over shows both its number and its operation. A rank that has issued fewer operations has not
    issued this collective, if the ranks issue the same operations. Otherwise it has, and nothing is known against it.

    Holds:   heartbeats of other recorders stay as they are
    """
    shown: dict[_Place, list[tuple[int, int]]] = {}
    for heartbeat in heartbeats.values():
        for c in heartbeat.groups or ():
            if c.open_operation is not None:
                shown.setdefault(_place(c, c.ranks), []).append((c.completed + 1, c.open_operation))
    found = dict(heartbeats)
    for rank, heartbeat in heartbeats.items():
        groups = heartbeat.groups or ()
        if any(c.operations is not None and c.open_operation is None for c in groups):
            known = tuple(_with_number(c, shown.get(_place(c, c.ranks), ())) for c in groups)
            if known != groups:
                found[rank] = replace(heartbeat, groups=known)
    return found


def _with_number(counters: GroupCounters, shown: Collection[tuple[int, int]]) -> GroupCounters:
    if counters.operations is None or counters.open_operation is not None or not shown:
        return counters
    lowest, furthest = min(shown), max(shown)
    ahead = {operation - number for number, operation in shown}
    if counters.operations < lowest[0] or (len(ahead) == 1 and counters.operations < lowest[1]):
        # With nothing but collectives, each operation is one.
        issued = min(lowest[0] - 1, counters.operations)
    else:
        issued = max(furthest[0], counters.enqueued - max(ahead))
    return replace(counters, enqueued=issued, completed=issued)


def _group_key(counters: GroupCounters) -> tuple[str, int, int]:
    ranks = counters.ranks or ()
    return counters.name, len(ranks), ranks[0] if ranks else -1


def _settled(counters: GroupCounters, rank: int, over: Mapping[int, int]) -> GroupCounters:
    others = [count for other, count in over.items() if other != rank]
    if not others or counters.completed >= counters.enqueued or not (counters.ranks or counters.everybody):
        return counters
    return replace(counters, completed=max(counters.completed, min(counters.enqueued, *others)))


def who_waits(
    live: Mapping[int, Heartbeat], waiting: Collection[int], stalled: Collection[int], gone: Collection[int]
) -> Waits | None:
    """Compare the waiting ranks with the others, by the most certain basis that separates them.

    None if no rank is seen to wait for another. `waiting`: ranks that have waited for too long. `stalled`: all ranks that
    have made no progress for that time. `gone`: ranks that have ended, are about to end, or have never reported.
    """
    everybody = frozenset(live) | frozenset(gone)
    unread = frozenset(rank for rank, heartbeat in live.items() if heartbeat.groups is None)
    excused = frozenset(rank for rank in waiting if not cannot_answer(live[rank]))
    dumb = frozenset(rank for rank in unread if cannot_answer(live[rank]))
    halted = frozenset(rank for rank, heartbeat in live.items() if is_halted(heartbeat))
    pending = frozenset(rank for rank in waiting if is_pending(live[rank]))
    if any(c.recorder != HOST_RECORDER for heartbeat in live.values() for c in heartbeat.groups or ()):
        on_device = _by_chains(live, waiting, stalled, everybody, frozenset(gone), dumb)
        if on_device is not None:
            return on_device
    first: Waits | None = None
    nobody = frozenset[int]()
    for groups, inside, not_read, basis in (
        (_exchanged(live), pending, nobody, EXCHANGES),
        (_recorded(live), pending, unread, FLIGHT_RECORDER),
        (_called(live, waiting), frozenset(waiting), nobody, CALLS),
    ):
        found = _compared(groups, everybody, inside, frozenset(gone), not_read, excused, dumb, halted, basis)
        if found is None:
            continue
        late = _ends_of_the_chain(found.late, live, waiting, stalled, pending)
        others = tuple(sorted({*found.waiting, *waiting} - set(late)))
        crossed = () if late else tuple(sorted(set(found.late) & set(others)))
        found = Waits(others, late, basis, found.group, found.index, crossed)
        if late:
            return found
        first = first or found
    if first is None:
        return _by_phase(live, waiting, stalled, gone)
    return replace(first, crossed=first.crossed or _crossed(waiting, live))


def _by_chains(
    live: Mapping[int, Heartbeat],
    waiting: Collection[int],
    stalled: Collection[int],
    everybody: frozenset[int],
    gone: frozenset[int],
    dumb: frozenset[int],
) -> Waits | None:
    """With the recorder of a device: the ends of the chains over all groups of all recorders; None if they show nothing.

    If no rank is an end, a rank whose recorder could not be read may be. If all were read and all have come, no rank is late.
    """
    chains = _chains(live, everybody)
    inside = {*chains.waiting, *waiting}
    # gloo ends a call on one rank before another one. No device is behind there.
    delays = [d for d in chains.delays if d.how is not Delay.BEHIND or _place_of(d.group).recorder != HOST_RECORDER]
    ends = {delay.rank for delay in delays}
    if ends := ends & frozenset(stalled) or ends:
        delays = [delay for delay in delays if delay.rank in ends]
        most = min(
            delays,
            key=lambda d: (
                not isinstance(d.group, _Place),
                -len(d.waiting),
                len(_place_of(d.group).name),
                _place_of(d.group).name,
            ),
        )
        return Waits(
            tuple(sorted(inside - ends)),
            tuple(sorted(ends)),
            FLIGHT_RECORDER,
            _place_of(most.group).name,
            most.number if isinstance(most.group, _Place) else None,
            recorder=_place_of(most.group).recorder,
            behind=tuple(sorted({delay.rank for delay in delays if delay.how in (Delay.BEHIND, Delay.QUEUED)})),
        )
    unheard = frozenset(chains.unheard)
    silent = frozenset(rank for rank in unheard & live.keys() if live[rank].driver_answers is False)
    if late := unheard & dumb or unheard & gone or silent:
        return Waits(tuple(sorted(inside - late)), tuple(sorted(late)), FLIGHT_RECORDER, recorder=ON_DEVICE)
    if unheard:
        # They answer nothing for the moment. Where they are cannot be told from their stacks either: all wait for devices.
        return Waits(tuple(sorted(inside)), (), FLIGHT_RECORDER, recorder=ON_DEVICE)
    whole = [one for one in chains.together if isinstance(one.group, _Place)]
    if not whole:
        # What a rank waits in is over elsewhere, or they wait for each other's messages or behind each other's groups: which ranks stand
        # still is known, and none of them is at the end of a chain.
        return Waits(tuple(sorted(inside)), (), FLIGHT_RECORDER, recorder=ON_DEVICE) if chains.waiting else None
    where = max(whole, key=lambda one: len(one.ranks))
    place = _place_of(where.group)
    return Waits(
        tuple(sorted(inside)), (), FLIGHT_RECORDER, place.name, where.number, recorder=place.recorder, together=True
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """A group as one recorder has it."""

    recorder: str
    """Name of the recorder."""
    name: str
    """Name of the group."""
    size: int
    """Number of its ranks, and the first and the last; 0: not known. Hashing 4,096 numbers for each of 4,096 ranks takes a second."""
    first: int
    last: int


_Group_or_message = _Place | tuple[_Place, int, int]


def _place(counters: GroupCounters, ranks: tuple[int, ...] | None) -> _Place:
    size, first, last = (len(ranks), ranks[0], ranks[-1]) if ranks else (0, 0, 0)
    return _Place(counters.recorder, counters.name, size, first, last)


def _place_of(group: _Group_or_message) -> _Place:
    return group if isinstance(group, _Place) else group[0]


def _chains(live: Mapping[int, Heartbeat], everybody: frozenset[int]) -> Chains[_Group_or_message]:
    groups: dict[_Group_or_message, dict[int, GroupProgress]] = {}
    members: dict[_Group_or_message, Collection[int]] = {}
    messages: dict[int, set[tuple[_Place, int, int]]] = {}
    heard = frozenset(rank for rank, heartbeat in live.items() if heartbeat.groups is not None)
    for rank, heartbeat in live.items():
        # What the rank issued later, in another group, is queued on the device behind what is not over.
        oldest = min((c.open_since_ns for c in heartbeat.groups or () if c.open_since_ns is not None), default=None)
        for c in heartbeat.groups or ():
            ranks = c.ranks or heartbeat.group_ranks.get(c.name)
            if not _comparable(c, ranks):
                continue
            place = _place(c, ranks)
            is_open = c.enqueued > c.completed
            groups.setdefault(place, {})[rank] = GroupProgress(
                c.enqueued,
                c.completed + 1 if is_open else None,
                first=oldest is None or c.open_since_ns is None or c.open_since_ns <= oldest,
            )
            members.setdefault(place, ranks or everybody)
            messages.setdefault(rank, set()).update((place, *message) for message in c.messages)
    for pair, at in messages_as_groups(messages, heard).items():
        groups[pair], members[pair] = at, pair[1:]
    return follow_chains(groups, members, heard)


def _recorded(live: Mapping[int, Heartbeat]) -> list[_Group]:
    """The groups of the flight recorder. A group with unknown members is compared only if it has all ranks."""
    counted = [
        (rank, counters, counters.ranks or heartbeat.group_ranks.get(counters.name))
        for rank, heartbeat in live.items()
        for counters in heartbeat.groups or ()
    ]
    return _gathered(
        (rank, c.name, ranks, c.enqueued, c.completed, c.recorder)
        for rank, c, ranks in counted
        if _comparable(c, ranks)
    )


def _exchanged(live: Mapping[int, Heartbeat]) -> list[_Group]:
    """The groups and lanes of paceline's own exchange, as the rings have them; none without its members."""
    return _gathered(
        (rank, c.name, c.ranks, c.enqueued, c.completed, "")
        for rank, heartbeat in live.items()
        for c in heartbeat.exchanges
        if c.ranks or c.everybody
    )


def _comparable(counters: GroupCounters, ranks: tuple[int, ...] | None) -> bool:
    return bool(ranks) or counters.name in DEFAULT_GROUP_NAMES


def _called(live: Mapping[int, Heartbeat], waiting: Collection[int]) -> list[_Group]:
    """The calls from Python. A waiting rank has not finished its last call."""
    return _gathered(
        (rank, name, heartbeat.group_ranks.get(name), count, count - 1 if rank in waiting else count, "")
        for rank, heartbeat in live.items()
        for name, count in heartbeat.calls.items()
        if heartbeat.group_ranks.get(name) or name in DEFAULT_GROUP_NAMES
    )


def _gathered(rows: Iterable[tuple[int, str, tuple[int, ...] | None, int, int, str]]) -> list[_Group]:
    groups: dict[tuple[str, str, int, int, int], _Group] = {}
    for rank, name, ranks, entered, done, recorder in rows:
        # Not the ranks themselves: hashing 4,096 numbers for each of 4,096 ranks takes a second.
        key = (recorder, name, len(ranks), ranks[0], ranks[-1]) if ranks else (recorder, name, 0, 0, 0)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(name, frozenset(ranks) if ranks else None)
        group.entered[rank] = entered
        group.done[rank] = done
    return list(groups.values())


def _compared(
    groups: Iterable[_Group],
    everybody: frozenset[int],
    waiting: Collection[int],
    gone: frozenset[int],
    unread: frozenset[int],
    excused: frozenset[int],
    dumb: frozenset[int],
    halted: frozenset[int],
    basis: str,
) -> Waits | None:
    """The late ranks of every group in which a rank waits, and the group in which most wait.

    `unread`: ranks whose counters could not be read. Of these, `dumb` ranks are late: they cannot answer. If no rank is late, the
    others are, unless they are `excused`: seen to wait themselves. A rank that was read and has no counters in a group has never
    called there. `halted`: ranks that cannot continue; if all have come, these delay the others.
    """
    late: set[int] = set()
    stuck: set[int] = set()
    all_here = True
    largest: tuple[int, str, int] | None = None
    for group in groups:
        inside = [rank for rank in group.entered if rank in waiting and group.entered[rank] > group.done[rank]]
        if not inside:
            continue
        done = max(group.done[rank] for rank in inside)
        members = group.members if group.members is not None else everybody
        without = members - group.entered.keys()
        behind = _behind(group, inside, done) | (without - unread - gone)
        behind = behind or set(halted & group.entered.keys())
        silent = without & unread
        late |= behind | (silent & dumb) or silent - excused or without & gone
        stuck.update(inside)
        all_here = all_here and len(inside) == len(members)
        if largest is None or len(inside) > largest[0]:
            largest = (len(inside), group.name, done + 1)
    if largest is None or not (late or all_here):
        return None
    return Waits(tuple(sorted(stuck)), tuple(sorted(late)), basis, largest[1], largest[2])


def _behind(group: _Group, inside: Collection[int], done: int) -> set[int]:
    """Ranks that have not entered the collective others wait in; if all have, ranks that are behind and in no collective."""
    behind = {rank for rank, entered in group.entered.items() if entered <= done}
    if behind:
        return behind
    furthest = max(group.entered[rank] for rank in inside)
    return {rank for rank, entered in group.entered.items() if entered < furthest and entered == group.done[rank]}


def _ends_of_the_chain(
    late: Collection[int],
    live: Mapping[int, Heartbeat],
    waiting: Collection[int],
    stalled: Collection[int],
    pending: Collection[int],
) -> tuple[int, ...]:
    """The late ranks that wait for no rank.

    If all of them wait (for a receive, say), the ranks that are outside of any wait.
    """
    free = [rank for rank in late if rank not in waiting]
    if free or not late:
        # The counters of a rank that makes progress may be older than those of the idle ranks.
        still = [rank for rank in free if rank in stalled or rank not in live] or free
        # A rank that began to wait a moment ago is no end of the chain either.
        outside = [rank for rank in still if rank not in live or not is_in_a_wait(live[rank])]
        return tuple(sorted(outside or still))
    outside = [rank for rank in stalled if rank in live and not is_in_a_wait(live[rank])]
    if outside:
        return tuple(sorted(outside))
    return tuple(sorted(rank for rank in late if rank not in pending))


def _by_phase(
    live: Mapping[int, Heartbeat], waiting: Collection[int], stalled: Collection[int], gone: Collection[int]
) -> Waits | None:
    """Without comparable counters: some ranks wait, some do not.

    No result while any rank makes progress: a pipeline has long waits.
    """
    if len(stalled) < len(live):
        return None
    if gone and waiting:
        return Waits(tuple(sorted(waiting)), tuple(sorted(gone)), PHASE)
    # A rank that began to wait a moment ago delays no rank either.
    inside = {*waiting, *(rank for rank in stalled if is_in_a_wait(live[rank]))} if waiting else set()
    outside = [rank for rank in stalled if rank not in inside]
    if not outside:
        return Waits(tuple(sorted(inside)), (), PHASE, crossed=_crossed(inside, live))
    if waiting:
        return Waits(tuple(sorted(inside)), tuple(sorted(outside)), PHASE)
    elsewhere = [rank for rank in outside if live[rank].phase in ("data", "checkpoint")]
    if elsewhere and len(elsewhere) < len(outside):
        return Waits(tuple(sorted(set(outside) - set(elsewhere))), tuple(sorted(elsewhere)), STEPS)
    fewest = min((live[rank].step_count or 0 for rank in outside), default=0)
    fewer = [rank for rank in outside if (live[rank].step_count or 0) == fewest]
    if len(fewer) < len(outside):
        return Waits(tuple(sorted(set(outside) - set(fewer))), tuple(sorted(fewer)), STEPS)
    # No rank differs from the others: they pause, or their counters do not show what they wait in.
    halted = tuple(sorted(rank for rank in outside if cannot_answer(live[rank])))
    return Waits((), halted, STEPS)


def _crossed(waiting: Collection[int], live: Mapping[int, Heartbeat]) -> tuple[int, ...]:
    """Of ranks that all wait, those that wait for a message of each other, or in different calls at the same index of a group."""
    peers = {rank: peer for rank in waiting if (peer := _waits_for_peer(live[rank])) is not None}
    # A rank that no other rank waits for is not in the cycle.
    chained = set(peers)
    while (kept := {rank for rank in chained if peers[rank] in chained} & {peers[rank] for rank in chained}) != chained:
        chained = kept
    calls = {rank: call for rank in waiting if (call := live[rank].last_call) is not None and call.index}
    operations = {(call.index, call.operation) for call in calls.values()}
    if not chained and len(calls) == len(waiting) and len(operations) > len({index for index, _ in operations}) == 1:
        chained = set(waiting)
    return tuple(sorted(chained))


def _waits_for_peer(heartbeat: Heartbeat) -> int | None:
    """The rank at the other end of the send or receive that this rank waits in; None if it waits in another call."""
    call = heartbeat.last_call
    if heartbeat.phase != "communication" or call is None or call.operation not in ("send", "recv"):
        return None
    return call.root
