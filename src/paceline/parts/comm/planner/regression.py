"""Whether a result is slower than earlier results, each figure with a margin from its own spread. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

# A quiet machine varies by this much from day to day; a smaller difference is never called worse.
LEAST_MARGIN = 0.10
# A figure with a larger margin says nothing: it would have to be twice as slow.
MOST_MARGIN = 1.00
# Standard deviations that a single figure may lie off by chance.
_DEVIATIONS = 3.0
# Of a normal distribution. Source: Rousseeuw and Croux 1993, "Alternatives to the median absolute deviation".
_MAD_TO_DEVIATION = 1.4826
# Standard error of a median of n samples, in deviations over the root of n.
_MEDIAN_ERROR = 1.2533
# Kept results: this many of the oldest, so that a slow decline is seen, and of the newest.
OLDEST, NEWEST = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured time."""

    seconds: float
    """Median of the samples."""
    mad_seconds: float = 0.0
    """Their median absolute deviation."""
    count: int = 1
    """Number of samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One kept result."""

    made_ns: int
    """When it was made, Unix time."""
    points: Mapping[str, Figure]
    """Label (a size, a pair of hosts, a strategy) -> figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure beside its usual value. It is `worse` if it is slower by more than the margin."""

    label: str
    """What the figure is of: a size, a pair of hosts, a strategy."""
    seconds: float
    """The new value."""
    usual_seconds: float
    """The usual value."""
    slower_fraction: float
    """0.31 is 31 % slower; negative is faster."""
    margin_fraction: float
    """Difference that chance explains."""

    @property
    def worse(self) -> bool:
        return self.slower_fraction > self.margin_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A result compared with the kept results."""

    changes: tuple[Change, ...]
    """Figures that could be judged."""
    since_ns: int
    """When the newest kept result was made, Unix time."""
    results: int
    """Number of kept results."""
    too_noisy: tuple[str, ...] = ()
    """Labels whose spread is too large for a judgement."""
    new: tuple[str, ...] = ()
    """Labels that no kept result has."""

    @property
    def worse(self) -> tuple[Change, ...]:
        """Figures that count as worse: two neighbours, or any if fewer than three could be judged.

        Among many figures a single one is sometimes off by chance.
        """
        if len(self.changes) < 3:
            return tuple(one for one in self.changes if one.worse)
        said = set()
        for here, there in pairwise(self.changes):
            if here.worse and there.worse:
                said |= {here.label, there.label}
        return tuple(one for one in self.changes if one.label in said)


def compare(now: Mapping[str, Figure], kept: Sequence[Baseline]) -> Regression:
    """Compares a result with the usual values. `kept` has results that were not worse, oldest first.

    The usual value is the median of the kept results; with more than four results that of the oldest four or of the others, whichever are
    faster. The margin is the largest of 10 %, three standard deviations of those results among each other and, while fewer than five
    are kept, three of the iterations within one; the uncertainty of today's own median comes on top.

    Raises:  ValueError: nothing is kept
    Holds:   compare(x, [x]) is not worse; twice as slow is worse or too noisy
    """
    if not kept:
        raise ValueError("no result to compare with")
    changes, noisy, new = [], [], []
    for label, point in now.items():
        past = [result.points[label] for result in kept if label in result.points]
        if not past:
            new.append(label)
            continue
        like = _like(past)
        usual = median(one.seconds for one in like)
        margin = _margin(point, like, usual, many=len(past) > OLDEST)
        if margin > MOST_MARGIN:
            noisy.append(label)
            continue
        changes.append(
            Change(
                label=label,
                seconds=point.seconds,
                usual_seconds=usual,
                slower_fraction=point.seconds / usual - 1,
                margin_fraction=margin,
            )
        )
    return Regression(
        changes=tuple(changes),
        since_ns=max(result.made_ns for result in kept),
        results=len(kept),
        too_noisy=tuple(noisy),
        new=tuple(new),
    )


def confirmed(first: Regression, again: Regression) -> Regression:
    """The first comparison with a second measurement of its worse figures: the better value counts.

    Holds:   nothing becomes worse by it
    """
    second = {one.label: one for one in again.changes}
    changes = tuple(
        min(one, second.get(one.label, one), key=lambda change: change.slower_fraction) for one in first.changes
    )
    return Regression(
        changes=changes, since_ns=first.since_ns, results=first.results, too_noisy=first.too_noisy, new=first.new
    )


def with_new(kept: Sequence[Baseline], result: Baseline) -> tuple[Baseline, ...]:
    """The kept results and one more. The first four stay; of the others the oldest are dropped."""
    everything = (*kept, result)
    return everything if len(everything) <= OLDEST + NEWEST else (*everything[:OLDEST], *everything[-NEWEST:])


def spread(samples: Sequence[float]) -> Figure:
    """Median and median absolute deviation of samples in seconds.

    Raises:  StatisticsError: no samples
    """
    middle = median(samples)
    return Figure(seconds=middle, mad_seconds=median(abs(one - middle) for one in samples), count=len(samples))


def _like(past: Sequence[Figure]) -> Sequence[Figure]:
    """The kept figures behind the usual value: the oldest four or the others, whichever are faster; all if there are only a few."""
    if len(past) <= OLDEST:
        return past
    return min(past[:OLDEST], past[OLDEST:], key=lambda part: median(one.seconds for one in part))


def _margin(now: Figure, past: Sequence[Figure], usual: float, *, many: bool) -> float:
    # The spread between results shows only in several of them; with a few, the spread of their iterations counts.
    within = 0.0 if many else median(one.mad_seconds for one in past) * _MAD_TO_DEVIATION
    among = spread([one.seconds for one in past]).mad_seconds * _MAD_TO_DEVIATION
    error = _MEDIAN_ERROR * now.mad_seconds * _MAD_TO_DEVIATION / math.sqrt(max(1, now.count))
    return max(LEAST_MARGIN, _DEVIATIONS * within / usual, _DEVIATIONS * among / usual) + _DEVIATIONS * error / usual
