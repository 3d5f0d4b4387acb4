"""Which ranks keep the others from continuing, by what each rank has issued and what of it is not over. Pure; linear.

A rank waits in the oldest collective that is not over on it; what it issued later is queued behind that. Another member of the group
delays it in one of four ways (`Delay`). A rank that delays others may itself wait, in another group. The ranks at the ends of these
chains delay all: they wait for nobody.

A group is whatever its members name alike: the recorder and the group's name for collectives, the pair of ranks for sends and
receives. Never the group's description, which several groups may share, and never a number that each process counts for itself.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Generic, TypeVar

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far one rank is in one group."""

    issued: int
    """The highest number that the rank has issued; 0: none."""
    open: int | None = None
    """The lowest number that it has issued and that is not over on it; None: all are over."""
    first: bool = True
    """It is the oldest of all that is not over on the rank. False: the rank waits in another group, and this one is queued behind it."""


class Delay(StrEnum):
    """How a rank delays another rank of a group."""

    NOT_COME = "has not issued the collective"
    ABSENT = "has nothing in this group, by a recorder that keeps only what is not over"
    BEHIND = "has issued the collective, and it is not over there while it is over elsewhere: the device is behind"
    QUEUED = "has issued the collective, and it is queued there behind one of another group that is not over"


@dataclass(frozen=True, slots=True)
class Delayed(Generic[Group]):
    """Ranks of one group that one rank delays."""

    rank: int
    """The rank that delays."""
    how: Delay
    """How it delays."""
    group: Group
    """The group."""
    number: int
    """The collective: the lowest that a delayed rank waits in; of a rank that is behind, the one that is over elsewhere."""
    waiting: tuple[int, ...]
    """The ranks that it delays here, sorted."""


@dataclass(frozen=True, slots=True)
class Together(Generic[Group]):
    """A collective that all members of a group have issued and that ends on none, though none of them is delayed anywhere."""

    group: Group
    """The group."""
    number: int
    """The collective."""
    ranks: tuple[int, ...]
    """All members, sorted."""


@dataclass(frozen=True, slots=True)
class Chains(Generic[Group]):
    """What the comparison shows."""

    ends: tuple[int, ...] = ()
    """The ranks at the ends of the chains, sorted: they delay others and wait for nobody. None of them is in `together`, unless
    its device is behind."""
    delays: tuple[Delayed[Group], ...] = ()
    """What these ranks delay."""
    waiting: tuple[int, ...] = ()
    """Ranks with a collective that is not over, without `ends`, sorted."""
    together: tuple[Together[Group], ...] = ()
    """Collectives in which no rank is missing; only if there are no `ends`. If their calls agree, a device, a link or the library does
    not end them."""
    unheard: tuple[int, ...] = ()
    """Members of groups with a waiting rank whose recorder was not read, sorted: they may be late, so nobody can say that no rank is."""


def follow_chains(
    groups: Mapping[Group, Mapping[int, GroupProgress]],
    members: Mapping[Group, Collection[int]],
    heard: Collection[int],
) -> Chains[Group]:
    """Compare the ranks within each group and follow who waits for whom.

    `groups`: group -> rank -> how far it is there. `members`: group -> its ranks, as far as they are known; of an unknown group
    only the ranks whose progress is given are compared. `heard`: the ranks whose recorder was read; the absence of others shows nothing.

    Holds:   names and order of ranks and groups change nothing; a rank that is not heard is never an end; nothing open -> Chains()
    """
    heard = frozenset(heard)
    open_ranks = {rank for progress in groups.values() for rank, at in progress.items() if _waits(at)}
    if not open_ranks:
        return Chains()
    delays = [delay for group, at in groups.items() for delay in _delays(group, at, members.get(group, ()), heard)]
    delayed = {rank for delay in delays for rank in delay.waiting}
    together = tuple(
        found
        for group, at in groups.items()
        if (found := _together(group, at, members.get(group, ()))) is not None and delayed.isdisjoint(found.ranks)
    )
    inside = {rank for one in together for rank in one.ranks}
    # A rank inside a collective in which nobody is missing cannot come to another one, and it is not missing there. Nor is a rank that
    # may wait for one that was not heard.
    inside |= {
        rank
        for group, at in groups.items()
        if not at.keys() | heard >= set(members.get(group, ())) or not members.get(group)
        for rank, one in at.items()
        if _waits(one)
    }
    ends = {
        delay.rank
        for delay in delays
        if delay.rank not in delayed and (delay.rank not in inside or delay.how is Delay.BEHIND)
    }
    unheard = {
        rank
        for group, at in groups.items()
        if any(_waits(one) for one in at.values())
        for rank in members.get(group, ())
        if rank not in at and rank not in heard
    }
    return Chains(
        ends=tuple(sorted(ends)),
        delays=tuple(delay for delay in delays if delay.rank in ends),
        waiting=tuple(sorted(open_ranks - ends)),
        together=() if ends else together,
        unheard=tuple(sorted(unheard)),
    )


def messages_as_groups(
    open_messages: Mapping[int, Collection[tuple[Group, int, int]]], heard: Collection[int]
) -> dict[tuple[Group, int, int], dict[int, GroupProgress]]:
    """Sends and receives that are not over, each pair of ranks as a group of two for `follow_chains`.

    `open_messages`: rank -> (group, sender, receiver) of each. Ranks count their messages alone, so only what is not over is compared:
    a side without an open message has not come.
    """
    waiting: dict[tuple[Group, int, int], set[int]] = {}
    for rank, messages in open_messages.items():
        for message in messages:
            waiting.setdefault(message, set()).add(rank)
    return {
        message: {
            rank: GroupProgress(1, 1) if rank in inside else GroupProgress(0)
            for rank in {message[1], message[2]}
            if rank in inside or rank in heard
        }
        for message, inside in waiting.items()
    }


def _waits(one: GroupProgress) -> bool:
    return one.open is not None and one.first


def _delays(
    group: Group, at: Mapping[int, GroupProgress], members: Collection[int], heard: Collection[int]
) -> Iterator[Delayed[Group]]:
    """What each rank delays in one group."""
    waits = sorted((one.open, rank) for rank, one in at.items() if one.open is not None and one.first)
    if not waits:
        return
    furthest = waits[-1][0]
    beyond: dict[int, tuple[int, tuple[int, ...]]] = {}
    at_number = {number: tuple(rank for _, rank in of_number) for number, of_number in groupby(waits, itemgetter(0))}

    def waiting_beyond(number: int) -> tuple[int, tuple[int, ...]]:
        # Thousands of late ranks share a few numbers, and with them one tuple.
        if number not in beyond:
            later = [(opened, rank) for opened, rank in waits if opened > number]
            beyond[number] = later[0][0], tuple(sorted(rank for _, rank in later))
        return beyond[number]

    for rank in sorted({*at, *(one for one in members if one in heard)}):
        one = at.get(rank)
        if one is None:
            yield Delayed(rank, Delay.ABSENT, group, *waiting_beyond(-1))
            continue
        if one.open is not None and not one.first and (here := at_number.get(one.open)):
            yield Delayed(rank, Delay.QUEUED, group, one.open, here)
        if one.open is not None and one.open < furthest:
            # It may not have issued the next ones either: it cannot before this one is over.
            yield Delayed(rank, Delay.BEHIND, group, one.open, waiting_beyond(one.open)[1])
        elif one.issued < furthest:
            yield Delayed(rank, Delay.NOT_COME, group, *waiting_beyond(one.issued))


def _together(group: Group, at: Mapping[int, GroupProgress], members: Collection[int]) -> Together[Group] | None:
    """The collective that all members of the group wait in; None if one of them is elsewhere, or if not all are known."""
    numbers = {one.open if one.first else None for one in at.values()}
    number = numbers.pop() if len(numbers) == 1 else None
    if number is None or not members or not at.keys() >= set(members):
        return None
    return Together(group, number, tuple(sorted(at)))
