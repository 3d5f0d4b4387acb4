"""Which ranks are late for the collectives of a step, and for which: the stamps of all ranks, compared. Pure.

A collective ends on all ranks together, so the delay of a rank after the first one is the time that it keeps the others waiting. DDP
starts the same sequence of buckets in every step; a rank that is late for all of them was late before backward, one that is late from
bucket k on lost its time inside backward.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from statistics import fmean, median
from typing import Protocol

from paceline.diagnosis.slow.noise import ALPHA, chance_of_share

# Smaller lags come from the scheduler, not from the job.
FLOOR_SECONDS = 0.001
# Stamps of all ranks together: minutes of a small job, seconds of one of thousands of ranks.
STAMPS = 200_000
_LONGEST_PERIOD = 512
_LONGEST_RHYTHM = 10_000
_RANKS_FOR_THE_STEP = 16
_BYTES = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "complexfloat": 8, "complex64": 8, "float": 4, "float32": 4, "int": 4, "int32": 4,
    "half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2, "byte": 1, "uint8": 1, "char": 1, "int8": 1, "bool": 1,
}  # fmt: skip


class Entry(Protocol):
    """The fields of diagnosis.flight_recorder.TraceEntry that are read."""

    @property
    def group(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def operation(self) -> str: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def shape(self) -> tuple[int, ...] | None: ...
    @property
    def created_ns(self) -> int | None: ...
    @property
    def recorder(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLags:
    """Lateness of one rank, in seconds."""

    lags: tuple[float, ...]
    """Median for each collective of a step."""
    by_step: tuple[tuple[int, float], ...]
    """(step, how late the rank was in it), in order."""
    late: float
    """Mean of these."""
    last_fraction: float
    """Fraction of steps in which it was the last by more than noise."""
    periodic: int | None
    """It is late once in this number of steps; None: not regularly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Lateness of all ranks of one group."""

    ranks: dict[int, RankLags]
    """Rank -> its lateness."""
    spread_seconds: float
    """How long the first rank waits for the last one in a mean step."""
    period: int | None
    """Collectives in a step; None: the steps' collectives do not repeat."""
    step_bytes: float | None
    """Bytes of the collectives of a step."""
    together: tuple[tuple[int, ...], ...] = ()
    """Ranks of one group each, whose `by_step` are of the same steps."""


@dataclass(slots=True)
class _Group:
    stamps: dict[int, dict[int, int]] = field(default_factory=dict)
    keys: dict[int, tuple[str, str | None, tuple[int, ...] | None]] = field(default_factory=dict)
    members: set[int] = field(default_factory=set)
    # Collectives that were dropped are not added again.
    oldest: int = 0


class Arrivals:
    """Stamps of the newest collectives, by group and index. Bounded: the oldest go first."""

    def __init__(self, most: int = STAMPS) -> None:
        self._most = most
        self._groups: dict[tuple[str, str], _Group] = defaultdict(_Group)
        self._count = 0

    def add(self, rank: int, entries: Iterable[Entry]) -> None:
        """Adds the newest collectives of one rank, stamped by the first host's clock; known ones may come again."""
        for entry in entries:
            if entry.created_ns is None or "send" in entry.operation or "recv" in entry.operation:
                continue
            group = self._groups[entry.group, entry.recorder]
            if entry.index < group.oldest:
                continue
            group.members.add(rank)
            stamps = group.stamps.setdefault(entry.index, {})
            if rank not in stamps:
                stamps[rank] = entry.created_ns
                self._count += 1
                group.keys.setdefault(entry.index, (entry.operation, entry.dtype, entry.shape))
        while self._count > self._most:
            self._prune()

    def _prune(self) -> None:
        # Drop a tenth more than needed, so that the next entry does not cause it again.
        keep = 0.9 * self._most / self._count
        for name, group in list(self._groups.items()):
            indices = sorted(group.stamps)
            for index in indices[: len(indices) - int(len(indices) * keep)]:
                self._count -= len(group.stamps.pop(index))
                group.keys.pop(index, None)
                group.oldest = index + 1
            if not group.stamps:
                # If a job makes groups again and again, none is kept for ever.
                del self._groups[name]

    def lateness(self, step_at: Callable[[int], float | None], since_ns: int = 0) -> Lateness | None:
        """How late each rank is, from the collectives that all members of a group have begun since `since_ns`.

        `step_at`: the step of the job at a moment, if it cannot be counted here. None: too little is known.
        """
        found: Lateness | None = None
        for group in sorted(self._groups.values(), key=lambda group: -len(group.members) * len(group.stamps)):
            if len(group.members) < 2:
                continue
            part = _of_group(group, step_at, since_ns)
            if part is not None:
                found = part if found is None else _with_ranks(found, part)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSteps:
    """How late the ranks were in some steps."""

    from_step: int
    """The first of the steps."""
    to_step: int
    """The last one."""
    late: dict[int, float]
    """Rank -> how late it was on average, in seconds."""
    last: dict[int, float]
    """Rank -> fraction of the steps in which it was the last by more than noise."""


def late_steps(lateness: Lateness, after_step: int) -> LateSteps | None:
    """The lateness in the steps after this one; None: there are none.

    Holds:   over all steps these are the means and fractions in `lateness`
    """
    late, last, steps = {}, {}, set()
    for ranks in lateness.together:
        costs = {
            rank: [cost for step, cost in lateness.ranks[rank].by_step if step > after_step]
            for rank in ranks
            if rank in lateness.ranks
        }
        spreads = [max(column) for column in zip(*costs.values(), strict=True)]
        if not spreads:
            continue
        steps |= {step for step, _ in lateness.ranks[next(iter(costs))].by_step if step > after_step}
        for rank, own in costs.items():
            late[rank] = fmean(own)
            last[rank] = fmean(cost >= spread > FLOOR_SECONDS for cost, spread in zip(own, spreads, strict=True))
    return LateSteps(from_step=min(steps), to_step=max(steps), late=late, last=last) if steps else None


def _with_ranks(first: Lateness, other: Lateness) -> Lateness:
    """Adds ranks of a smaller group that the larger groups do not have; for the same ranks, adds what they exchange here.

    A strategy exchanges the buckets of a step in several lanes, each a group of its own.
    """
    period, step_bytes = first.period, first.step_bytes
    more = (tuple(rank for rank in ranks if rank not in first.ranks) for ranks in other.together)
    if other.ranks.keys() == first.ranks.keys():
        period = period + other.period if period and other.period else period
        step_bytes = step_bytes + other.step_bytes if step_bytes and other.step_bytes else step_bytes
    return Lateness(
        ranks={**other.ranks, **first.ranks},
        spread_seconds=max(first.spread_seconds, other.spread_seconds),
        period=period,
        step_bytes=step_bytes,
        together=(*first.together, *(ranks for ranks in more if len(ranks) > 1)),
    )


def _of_group(group: _Group, step_at: Callable[[int], float | None], since_ns: int) -> Lateness | None:
    whole = [
        index
        for index, stamps in sorted(group.stamps.items())
        if len(stamps) == len(group.members) and min(stamps.values()) >= since_ns
    ]
    if len(whole) < 8:
        return None
    period = _period([group.keys.get(index) for index in whole], whole, _per_step(group, whole, step_at))
    length = period or 1
    first = _first_place(group, whole, length)
    steps = _steps(whole, length, first)
    if not steps:
        return None
    # Once for each collective, not for each of its ranks: with many ranks that would be most of the work.
    began = {index: min(group.stamps[index].values()) for step in steps for index in step}
    lags = {
        rank: [[(group.stamps[i][rank] - began[i]) / 1e9 for i in step] for step in steps]
        for rank in sorted(group.members)
    }
    numbers = [round(step_at(began[step[0]]) or 0) for step in steps]
    ordinals = [(step[0] - first) // length for step in steps] if period else None
    return _lateness(lags, numbers, ordinals, period, _step_bytes(group, steps[-1]) if period else None)


def _lateness(
    lags: Mapping[int, list[list[float]]],
    numbers: Sequence[int],
    ordinals: Sequence[int] | None,
    period: int | None,
    step_bytes: float | None,
) -> Lateness:
    late = {rank: [late_seconds(step) for step in steps] for rank, steps in lags.items()}
    spreads = [max(column) for column in zip(*late.values(), strict=True)]
    ranks = {}
    for rank, costs in late.items():
        last = [cost >= spread > FLOOR_SECONDS for cost, spread in zip(costs, spreads, strict=True)]
        ranks[rank] = RankLags(
            lags=tuple(median(column) for column in zip(*lags[rank], strict=True)),
            by_step=tuple(zip(numbers, costs, strict=True)),
            late=fmean(costs),
            last_fraction=sum(last) / len(last),
            periodic=None if ordinals is None else regular_interval(costs, ordinals, comparisons=len(late)),
        )
    return Lateness(
        ranks=ranks, spread_seconds=fmean(spreads), period=period, step_bytes=step_bytes, together=(tuple(ranks),)
    )


def late_seconds(lags: Sequence[float]) -> float:
    """How long a rank was late in one step, from its lags at the step's collectives in their order.

    A rank that waits for each collective before it continues is late anew each time, so its delays add up. Under DDP the
    buckets do not wait, so one delay shows at every bucket after it and counts once.

    Holds:   late_seconds([a, a, a]) == a; late_seconds([a, 0, b]) == a + b, for a, b over FLOOR_SECONDS
    """
    total = before = 0.0
    for lag in lags:
        if lag - before > FLOOR_SECONDS:
            total += lag - before
        before = lag
    return max(total, max(lags, default=0.0))


def regular_interval(costs: Sequence[float], ordinals: Sequence[int], comparisons: int = 1) -> int | None:
    """Interval in steps at which a rank is late, if it is regular and at least two; `ordinals`: the steps' numbers.

    Regular means more regular than equally many random pauses: see diagnosis.slow.noise. `comparisons`: ranks that are tested.
    """
    peak = sorted(costs)[-max(len(costs) // 50, 1)]
    threshold = max(peak / 2, 4 * median(costs), 2 * FLOOR_SECONDS)
    late = [ordinal for ordinal, cost in zip(ordinals, costs, strict=True) if cost >= threshold]
    gaps = [later - earlier for earlier, later in pairwise(late)]
    if len(gaps) < 3:
        return None
    interval, times = Counter(gaps).most_common(1)[0]
    if interval < 2 or times < 0.7 * len(gaps):
        return None
    return interval if _chance_of_rhythm(times, len(gaps), len(late) / len(costs)) < ALPHA / comparisons else None


def _chance_of_rhythm(times: int, gaps: int, share: float) -> float:
    """Probability that steps which are late by chance, with this frequency, have this many gaps of one length."""
    total = 0.0
    for gap in range(1, _LONGEST_RHYTHM):
        part = chance_of_share(times, gaps, share * (1 - share) ** (gap - 1))
        total += part
        # Longer gaps are rarer still.
        if part < 1e-9:
            break
    return total


# ------------------------------------------------------------------------------------------------- the step in the sequence


def _per_step(group: _Group, whole: Sequence[int], step_at: Callable[[int], float | None]) -> float | None:
    first, last = (step_at(min(group.stamps[index].values())) for index in (whole[0], whole[-1]))
    if first is None or last is None or last - first < 5:
        return None
    return (whole[-1] - whole[0]) / (last - first)


def _period(keys: Sequence[object], whole: Sequence[int], counted: float | None) -> int | None:
    """Collectives in a step: the count if the steps are known, in agreement with the repetition of the shapes."""
    if whole[-1] - whole[0] + 1 != len(whole):
        keys = keys[_last_gap(whole) :]
    shortest = next(
        (p for p in range(1, min(_LONGEST_PERIOD, len(keys) // 2) + 1) if _agreement(keys, p) >= 0.97), None
    )
    if counted is None:
        return shortest
    near = round(counted)
    if shortest is None or near < 1:
        return None
    # A mean over few steps is slightly off; a multiple of the period of the shapes is not.
    multiple = max(round(counted / shortest), 1) * shortest
    return multiple if abs(multiple - counted) <= max(0.15 * counted, 0.25) else None


def _last_gap(whole: Sequence[int]) -> int:
    gaps = [place for place, (one, other) in enumerate(pairwise(whole), 1) if other != one + 1]
    return gaps[-1]


def _agreement(keys: Sequence[object], period: int) -> float:
    pairs = len(keys) - period
    return sum(a == b for a, b in zip(keys, keys[period:], strict=False)) / pairs if pairs > 0 else 0.0


def _first_place(group: _Group, whole: Sequence[int], length: int) -> int:
    """The index modulo `length` that begins a step: before it even the fastest rank pauses longest."""
    if length == 1:
        return 0
    ranks = sorted(group.members)
    pauses: dict[int, float] = {place: float("inf") for place in range(length)}
    for rank in ranks[:: max(len(ranks) // _RANKS_FOR_THE_STEP, 1)]:
        gaps: dict[int, list[int]] = defaultdict(list)
        for one, other in pairwise(whole):
            if other == one + 1:
                gaps[other % length].append(group.stamps[other][rank] - group.stamps[one][rank])
        for place, found in gaps.items():
            pauses[place] = min(pauses[place], median(found))
    known = {place: pause for place, pause in pauses.items() if pause != float("inf")}
    return max(known, key=lambda place: known[place], default=0)


def _steps(whole: Sequence[int], length: int, first: int) -> list[tuple[int, ...]]:
    """The whole steps among the indices, each as its indices in order."""
    grouped: dict[int, list[int]] = defaultdict(list)
    for index in whole:
        grouped[(index - first) // length].append(index)
    return [tuple(step) for step in grouped.values() if len(step) == length]


def _step_bytes(group: _Group, step: Sequence[int]) -> float | None:
    total = 0
    for index in step:
        _, dtype, shape = group.keys[index]
        size = _BYTES.get((dtype or "").removeprefix("torch.").lower())
        if size is None or shape is None:
            return None
        total += size * prod(shape)
    return float(total)
