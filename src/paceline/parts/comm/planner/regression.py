"""Whether a result is slower than an earlier one, each figure with a margin from its own spread. Pure."""

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
    """An earlier result."""

    made_ns: int
    """When it was made, Unix time."""
    points: Mapping[str, Figure]
    """Label (a size, a pair of hosts, a strategy) -> figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure beside its earlier value. It is `worse` if it is slower by more than the margin."""

    label: str
    """What the figure is of: a size, a pair of hosts, a strategy."""
    seconds: float
    """The new value."""
    usual_seconds: float
    """The earlier value."""
    slower_fraction: float
    """0.31 is 31 % slower; negative is faster."""
    margin_fraction: float
    """Difference that chance explains."""

    @property
    def worse(self) -> bool:
        return self.slower_fraction > self.margin_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A result compared with an earlier one."""

    changes: tuple[Change, ...]
    """Figures that could be judged."""
    since_ns: int
    """When the earlier result was made, Unix time."""
    too_noisy: tuple[str, ...] = ()
    """Labels whose spread is too large for a judgement."""
    new: tuple[str, ...] = ()
    """Labels that the earlier result has not."""

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


def compare(now: Mapping[str, Figure], then: Baseline) -> Regression:
    """Compares a result with an earlier one.

    The margin is 10 %, or three standard deviations of the earlier iterations if that is more; the uncertainty of today's own median comes
    on top.

    Holds:   a result is not worse than itself; twice as slow is worse or too noisy
    """
    changes, noisy, new = [], [], []
    for label, point in now.items():
        past = then.points.get(label)
        if past is None:
            new.append(label)
            continue
        margin = _margin(point, past)
        if margin > MOST_MARGIN:
            noisy.append(label)
            continue
        changes.append(
            Change(
                label=label,
                seconds=point.seconds,
                usual_seconds=past.seconds,
                slower_fraction=point.seconds / past.seconds - 1,
                margin_fraction=margin,
            )
        )
    return Regression(changes=tuple(changes), since_ns=then.made_ns, too_noisy=tuple(noisy), new=tuple(new))


def confirmed(first: Regression, again: Regression) -> Regression:
    """The first comparison with a second measurement of its worse figures: the better value counts.

    Holds:   nothing becomes worse by it
    """
    second = {one.label: one for one in again.changes}
    changes = tuple(
        min(one, second.get(one.label, one), key=lambda change: change.slower_fraction) for one in first.changes
    )
    return Regression(changes=changes, since_ns=first.since_ns, too_noisy=first.too_noisy, new=first.new)


def spread(samples: Sequence[float]) -> Figure:
    """Median and median absolute deviation of samples in seconds.

    Raises:  StatisticsError: no samples
    """
    middle = median(samples)
    return Figure(seconds=middle, mad_seconds=median(abs(one - middle) for one in samples), count=len(samples))


def _margin(now: Figure, then: Figure) -> float:
    deviation = then.mad_seconds * _MAD_TO_DEVIATION
    error = _MEDIAN_ERROR * now.mad_seconds * _MAD_TO_DEVIATION / math.sqrt(max(1, now.count))
    return max(LEAST_MARGIN, _DEVIATIONS * deviation / then.seconds) + _DEVIATIONS * error / then.seconds
