"""Do all ranks issue the same collectives? Compared call by call, group by group, as the calls come in. Pure; bounded memory.

A rank that is behind is no divergence, and neither is another line of code alone: `if rank == 0: barrier() ... else: barrier()` is
common and right. Two calls differ if both have a value for operation, reduce operation, root, dtype, shape or size, and
the values differ. Equal calls from swapped lines (one rank issues line 10 then 11, another 11 then 10) differ too.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from paceline.diagnosis.case import Call, Divergence, MixedGroup
from paceline.diagnosis.hang.wait_graph import DEFAULT_GROUP_NAMES
from paceline.recording.string_table import AGAIN

# Calls shown on either side of the first that differs, and how far apart two calls may have changed places.
WINDOW = 16
# The calls that one rank brings at a time must not displace the first difference; with thousands of ranks fewer calls are kept.
_KEPT_CALLS = (4 * WINDOW, 640)
_KEPT_OF_ALL = 262_144
# The range in which ranks can be compared. A rank that is further behind is compared from where it is seen again.
_KEPT_REFERENCES = 4096
_KEPT_CROSSINGS = 64
_HARMLESS = 1024
# Ranks whose windows a divergence has. Of thousands of ranks with the same calls, a few are enough.
_SHOWN_RANKS = 8
# Ranks whose members a mixed group has.
_SHOWN_MEMBERS = 64
_GROUPS = 1024

_WITHOUT_TENSOR = ("barrier", "monitored_barrier")
# The ranks' contributions may correctly differ in size.
_OWN_SIZES = ("all_to_all", "all_to_all_single", "all_gather", "reduce_scatter", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class RankCalls:
    """Calls of one rank in one group."""

    rank: int
    """Global rank."""
    group: str
    """Name of the group."""
    group_ranks: tuple[int, ...]
    """Ranks of the group; empty: not known."""
    calls: tuple[Call, ...]
    """The calls, oldest first."""
    lost: int = 0
    """Calls that could not be read."""
    backend: str = ""
    """Backend of the group; "": not known."""
    recorder: str = ""
    """The flight recorder that has the calls, as in GroupCounters; "": they were issued from Python. Each counts on its own."""


def differences(one: Call, other: Call) -> tuple[str, ...]:
    """Fields of Call in which two calls differ, as far as both have them."""
    if one.operation != other.operation:
        return ("operation",)
    pairs = {
        "shape": (one.shape, other.shape),
        "dtype": (one.dtype, other.dtype),
        "reduce_op": (one.reduce_op, other.reduce_op),
        "root": (one.root, other.root),
    }
    found = tuple(name for name, (a, b) in pairs.items() if a is not None and b is not None and a != b)
    sized = one.operation not in _OWN_SIZES and one.size_bytes and other.size_bytes
    if not found and sized and one.size_bytes != other.size_bytes:
        return ("size_bytes",)
    return found


@dataclass(slots=True)
class _Group:
    ranks: tuple[int, ...] = ()
    # Rank -> the members of the group as it made it.
    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    is_mixed: bool = False
    told_mixed: bool = False
    backend: str = ""
    windows: dict[int, deque[Call]] = field(default_factory=dict)
    # Index -> the rank that was seen there first, and its call.
    references: dict[int, tuple[int, Call]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    first_calls: dict[int, Call] = field(default_factory=dict)
    crossings: list[tuple[int, int, int]] = field(default_factory=list)
    harmless: set[tuple[str, str]] = field(default_factory=set)
    found_index: int | None = None
    found_ns: int | None = None
    reported: bool = False


class CallComparison:
    """Compares the calls of ranks. `basis`: "calls" for calls from Python, "flight recorder" for calls from torch's recorder."""

    def __init__(self, *, basis: str = "calls", attempt: int = 0) -> None:
        self._basis = basis
        self._attempt = attempt
        self._groups: dict[tuple[str, str], _Group] = {}
        self._is_one_world = True

    def add(self, of_rank: RankCalls) -> None:
        """Add the calls that one rank issued in one group since the last time."""
        # The newest at the end. If a job makes groups again and again, those in use are kept.
        key = of_rank.group, of_rank.recorder
        group = self._groups[key] = self._groups.pop(key, _Group())
        if len(self._groups) > _GROUPS:
            del self._groups[next(iter(self._groups))]
        if group.reported:
            return
        group.ranks = group.ranks or of_rank.group_ranks
        if of_rank.group_ranks and of_rank.rank not in group.members:
            self._note_members(group, of_rank)
        group.backend = group.backend or of_rank.backend
        window = group.windows.get(of_rank.rank)
        if window is None:
            room = _KEPT_OF_ALL // max(len(group.ranks), len(group.windows), 1)
            window = group.windows[of_rank.rank] = deque(maxlen=min(max(room, _KEPT_CALLS[0]), _KEPT_CALLS[1]))
        for call in of_rank.calls:
            # Sends and receives have no index. A call that came before is not new.
            if call.index <= group.counts.get(of_rank.rank, 0):
                continue
            group.counts[of_rank.rank] = call.index
            if group.found_index is None or call.index <= group.found_index + WINDOW:
                window.append(call)
                _compare(group, of_rank.rank, call)
        if group.crossings and group.found_index is None:
            _look_for_crossings(group)

    def divergences(self, now_ns: int, *, final: bool = False) -> tuple[Divergence, ...]:
        """New divergences, each group once. A new one is held back until the next call, to include the calls after it.

        `final`: the ranks are gone, and no more calls will come.
        """
        found = []
        for (name, recorder), group in self._groups.items():
            if group.found_index is None or group.reported:
                continue
            first = group.found_ns is None
            group.found_ns = now_ns if group.found_ns is None else group.found_ns
            if first and not final and not _is_complete(group, group.found_index):
                continue
            found.append(self._report(name, recorder, group, group.found_index, group.found_ns))
        return tuple(found)

    def _note_members(self, group: _Group, of_rank: RankCalls) -> None:
        # Thousands of ranks share one tuple.
        same = group.ranks == of_rank.group_ranks
        group.members[of_rank.rank] = group.ranks if same else of_rank.group_ranks
        group.is_mixed |= not same
        is_default = of_rank.group.partition(AGAIN)[0] in DEFAULT_GROUP_NAMES
        # Ranks that make several worlds of their own are counted anew in each, and so are its groups.
        if of_rank.rank not in of_rank.group_ranks or (is_default and not same):
            self._is_one_world = False

    def mixed_groups(self, now_ns: int) -> tuple[MixedGroup, ...]:
        """Groups whose ranks do not agree on who is in them, each once; none where the ranks are not of one world."""
        found = []
        for (name, _), group in self._groups.items():
            if not self._is_one_world or not group.is_mixed or group.told_mixed:
                continue
            # A group of one rank exchanges nothing, whatever its name.
            kinds = {members: rank for rank, members in reversed(group.members.items()) if len(members) > 1}
            if len(kinds) > 1:
                group.told_mixed = True
                shown = [*sorted(kinds.values()), *sorted(set(group.members) - set(kinds.values()))][:_SHOWN_MEMBERS]
                members = {rank: group.members[rank] for rank in sorted(shown)}
                found.append(MixedGroup(group=name, members=members, found_ns=now_ns, attempt=self._attempt))
        return tuple(found)

    def _report(self, name: str, recorder: str, group: _Group, index: int, found_ns: int) -> Divergence:
        calls = group.first_calls | {
            rank: call for rank, window in group.windows.items() for call in window if call.index == index
        }
        steps = [call.step for call in calls.values() if call.step is not None]
        divergence = Divergence(
            group=name,
            ranks=tuple(sorted(calls)),
            index=index,
            found_ns=found_ns,
            calls=dict(sorted(calls.items())),
            windows={rank: _around(group.windows[rank], index) or (calls[rank],) for rank in _shown(calls)},
            counts=dict(sorted(group.counts.items())),
            basis=self._basis,
            recorder=recorder,
            backend=group.backend,
            since_step=min(steps, default=None),
            attempt=self._attempt,
        )
        group.reported = True
        group.windows.clear()
        group.first_calls.clear()
        group.references.clear()
        return divergence


def _compare(group: _Group, rank: int, call: Call) -> None:
    reference = group.references.get(call.index)
    if reference is None:
        group.references[call.index] = (rank, call)
        if len(group.references) > _KEPT_REFERENCES:
            del group.references[next(iter(group.references))]
        return
    other_rank, other = reference
    if differences(call, other):
        if group.found_index is None or call.index < group.found_index:
            group.found_index = call.index
            group.first_calls = {other_rank: other, rank: call}
    elif (
        call.site is not None
        and other.site is not None
        and call.site != other.site
        and call.operation not in _WITHOUT_TENSOR
        and (place(call), place(other)) not in group.harmless
        and len(group.crossings) < _KEPT_CROSSINGS
    ):
        group.crossings.append((other_rank, rank, call.index))


def place(call: Call) -> str:
    """The line of the user's code and the lines that led there: the same text for the same place."""
    site = call.site
    return "" if site is None else " < ".join((f"{site.file}:{site.line}", *site.callers))


def _look_for_crossings(group: _Group) -> None:
    waiting = []
    for a, b, index in group.crossings:
        one = {call.index: call for call in group.windows[a]}
        other = {call.index: call for call in group.windows[b]}
        end = crossing_end(one, other, index)
        if end is not None:
            group.found_index = index if group.found_index is None else min(group.found_index, index)
            group.first_calls = {}
        elif index not in one or index not in other:
            continue
        elif index + WINDOW in one and index + WINDOW in other:
            if len(group.harmless) < _HARMLESS:
                pair = (place(one[index]), place(other[index]))
                group.harmless |= {pair, (pair[1], pair[0])}
        else:
            waiting.append((a, b, index))
    group.crossings = waiting


def crossing_end(
    one: dict[int, Call], other: dict[int, Call], index: int, *, in_the_same_step: bool = False
) -> int | None:
    """The index up to which two ranks issued the same calls from the same places, but in another order from `index` on.

    `in_the_same_step`: a call that one rank makes a step later than the other is a different call.

    Holds:   the same order on both, or other calls -> None
    """
    found = _crossing_end(one, other, index, place, in_the_same_step=in_the_same_step)
    # No line of the user's code led to a thread.
    return found or _crossing_end(one, other, index, _line, in_the_same_step=in_the_same_step)


def _crossing_end(
    one: dict[int, Call], other: dict[int, Call], index: int, where: Callable[[Call], str], *, in_the_same_step: bool
) -> int | None:
    balance: Counter[tuple[object, ...]] = Counter()
    for at in range(index, index + WINDOW + 1):
        mine, theirs = one.get(at), other.get(at)
        if mine is None or theirs is None:
            return None
        steps = (mine.step, theirs.step) if in_the_same_step else (None, None)
        balance[(*_exchanged(mine), where(mine), steps[0])] += 1
        balance[(*_exchanged(theirs), where(theirs), steps[1])] -= 1
        if at > index and not any(balance.values()):
            return at
        if at == index and not any(balance.values()):
            return None
    return None


def _identity(call: Call) -> tuple[object, ...]:
    return (*_exchanged(call), place(call))


def _exchanged(call: Call) -> tuple[object, ...]:
    return (call.operation, call.reduce_op, call.root, call.dtype, call.shape)


def _line(call: Call) -> str:
    return "" if call.site is None else f"{call.site.file}:{call.site.line}"


def _is_complete(group: _Group, index: int) -> bool:
    return all(count >= index + WINDOW for count in group.counts.values())


def _around(window: Iterable[Call], index: int) -> tuple[Call, ...]:
    return tuple(call for call in window if abs(call.index - index) <= WINDOW)


def _shown(calls: dict[int, Call]) -> list[int]:
    """Ranks whose windows are kept: one of each kind of call, then others."""
    kinds: list[int] = []
    for rank in sorted(calls):
        if not any(_identity(calls[rank]) == _identity(calls[seen]) for seen in kinds[:_SHOWN_RANKS]):
            kinds.append(rank)
    others = [rank for rank in sorted(calls) if rank not in kinds]
    return sorted((kinds + others)[:_SHOWN_RANKS])
