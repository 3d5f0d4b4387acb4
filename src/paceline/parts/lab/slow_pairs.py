"""Hosts or pairs of hosts that exchange more slowly than the rest. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

# A pair is slow if it reaches less than this fraction of the ordinary bandwidth.
SLOW_FRACTION = 0.7
_DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two members (hosts, or ranks of one host) and the time of a sendrecv between them."""

    a: str
    """One member, a host or a rank."""
    b: str
    """The other member."""
    size_bytes: int
    """Size of the large message."""
    seconds: float
    """Time of the large message."""
    mad_seconds: float
    """Its median absolute deviation."""
    latency_seconds: float
    """Time of the smallest message."""
    iterations: int
    """Number of iterations."""
    gb_per_second: float = field(init=False)
    """10^9 bytes a second in each direction, both at once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gb_per_second", self.size_bytes / self.seconds / 1e9 if self.seconds > 0 else 0.0)

    @property
    def name(self) -> str:
        return f"{self.a} - {self.b}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A host, a pair or groups with slow links."""

    members: tuple[str, ...] = ()
    """One member: it is slow to all others. Two: only their pair is slow."""
    between: tuple[tuple[str, ...], ...] = ()
    """Every pair between these groups is slow."""
    worst: float
    """Slowest pair, 10^9 bytes a second."""
    others: float
    """Median of the other pairs, 10^9 bytes a second."""


def slow_pairs(pairs: Sequence[Pair]) -> tuple[Slow, ...] | None:
    """The outliers, the slowest first; None if there are too few pairs to compare.

    The ordinary bandwidth is the median of the fastest third of the pairs: one slow host is in half of the pairs of four. A host
    all of whose pairs are slow is named alone; hosts that form groups with fast pairs inside and slow pairs between are named
    as groups (two racks, two zones); otherwise each slow pair is named.

    Holds:   equal pairs -> (); fewer than 3 pairs -> None
    """
    if len(pairs) < 3:
        return None
    speeds = sorted((pair.gb_per_second for pair in pairs), reverse=True)
    better = speeds[: (len(speeds) + 2) // 3]
    ordinary = median(better)
    deviation = median(abs(speed - ordinary) for speed in better) * 1.4826
    limit = min(SLOW_FRACTION * ordinary, ordinary - _DEVIATIONS * deviation)
    slow = [pair for pair in pairs if pair.gb_per_second < limit]
    if not slow:
        return ()
    others = median(pair.gb_per_second for pair in pairs if pair.gb_per_second >= limit)
    return tuple(sorted(_named(pairs, slow, others), key=lambda one: one.worst))


def _named(pairs: Sequence[Pair], slow: Sequence[Pair], others: float) -> list[Slow]:
    groups = _joined(pairs, {pair.name for pair in slow})
    alone = {group[0] for group in groups if len(group) == 1}
    large = [group for group in groups if len(group) > 1]
    found = [
        Slow(members=(member,), worst=_worst(pair for pair in slow if member in (pair.a, pair.b)), others=others)
        for member in sorted(alone)
    ]
    rest = [pair for pair in slow if not alone & {pair.a, pair.b}]
    if len(large) > 1:
        place = {member: number for number, group in enumerate(large) for member in group}
        across = [pair for pair in rest if place[pair.a] != place[pair.b]]
        found.append(Slow(between=tuple(large), worst=_worst(across), others=others))
        rest = [pair for pair in rest if place[pair.a] == place[pair.b]]
    return found + [Slow(members=(pair.a, pair.b), worst=pair.gb_per_second, others=others) for pair in rest]


def _joined(pairs: Sequence[Pair], slow: set[str]) -> list[tuple[str, ...]]:
    """Members that quick pairs join, directly or through others, in order of their first member."""
    group_of: dict[str, list[str]] = {}
    for pair in pairs:
        for member in (pair.a, pair.b):
            group_of.setdefault(member, [member])
        if pair.name not in slow and group_of[pair.a] is not group_of[pair.b]:
            merged = group_of[pair.a] + group_of[pair.b]
            group_of.update(dict.fromkeys(merged, merged))
    order = {member: number for number, member in enumerate(group_of)}
    unique = {id(group): group for group in group_of.values()}
    return sorted((tuple(sorted(group, key=order.__getitem__)) for group in unique.values()), key=lambda g: order[g[0]])


def _worst(pairs: Iterable[Pair]) -> float:
    return min(pair.gb_per_second for pair in pairs)
