"""What chance alone does to a mean, a share or a count: the bounds that every claim of a statistic is held against. Pure.

Steps that follow one another are alike, because what disturbs a machine lasts for many of them: single steps are no independent samples.
They are gathered into blocks of consecutive steps, and the spread of the blocks says how far off their mean can be (batch means).
Where a few blocks in a row still resemble each other, the interval is widened by what that takes from their number.

Source:  Law, "Simulation Modeling and Analysis", section 9.5.3, batch means; Abramowitz and Stegun, 26.7.5 (quantile of Student's t);
         Bonferroni's inequality for several comparisons at once
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import comb, exp, sqrt
from statistics import NormalDist, fmean, variance

from paceline.diagnosis.case import Estimate

# How often a claim that chance made may be believed, of all the comparisons of one judgement together.
ALPHA = 1e-3
LEAST_BLOCKS, MOST_BLOCKS = 8, 20
# Blocks more alike than this are one long disturbance, of which nobody can tell how often it comes.
_MOST_ALIKE = 0.8
# Of more events, a Poisson distribution is as good as a normal one.
_MANY_EVENTS = 500


def blocks(
    values: Sequence[float], middle: Callable[[Sequence[float]], float] = fmean, *, least: int = 2
) -> list[float]:
    """The middle of each of up to MOST_BLOCKS equal blocks of consecutive values; empty where they make fewer than LEAST_BLOCKS.

    `least`: values in a block; one where each is a mean over many steps already.

    Holds:   what does not fill the blocks is left out at the beginning
    """
    count = min(MOST_BLOCKS, len(values) // least)
    if count < LEAST_BLOCKS:
        return []
    size = len(values) // count
    first = len(values) - size * count
    return [middle(values[at : at + size]) for at in range(first, len(values), size)]


def estimate(means: Sequence[float], comparisons: int = 1) -> Estimate | None:
    """The mean of these blocks with its interval; None of fewer than LEAST_BLOCKS.

    `comparisons`: how many such means are looked at for the one that stands out. Each bound is wrong with a chance of ALPHA over that.
    """
    if len(means) < LEAST_BLOCKS:
        return None
    mean = fmean(means)
    error = sqrt(variance(means, mean) / len(means) * _inflation(means, mean))
    off = student_quantile(1 - ALPHA / max(comparisons, 1), len(means) - 1) * error
    return Estimate(seconds=mean, low=mean - off, high=mean + off, blocks=len(means))


def _inflation(means: Sequence[float], mean: float) -> float:
    """By how much the variance of the mean is larger than that of independent blocks, from what two neighbours have in common."""
    whole = sum((one - mean) ** 2 for one in means)
    if not whole:
        return 1.0
    alike = sum((one - mean) * (other - mean) for one, other in pairwise(means)) / whole
    alike = min(max(alike, 0.0), _MOST_ALIKE)
    return (1 + alike) / (1 - alike)


def student_quantile(p: float, degrees: int) -> float:
    """The value that Student's t of so many degrees of freedom stays below with probability p.

    Holds:   within 2 % for degrees >= 7 and p <= 0.9999
    """
    z = NormalDist().inv_cdf(p)
    terms: tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(degrees**power) for power, term in enumerate(terms, 1))


def chance_of_share(times: int, of: int, share: float) -> float:
    """How often something that happens with this share comes at least `times` times of `of`: the tail of a binomial distribution."""
    return min(sum(comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(times, of + 1)), 1.0)


def chance_of_count(times: int, expected: float) -> float:
    """How often at least `times` events come where so many are expected: the tail of a Poisson distribution.

    Holds:   chance_of_count(0, x) == 1; it falls as `times` grows
    """
    if expected > _MANY_EVENTS:
        return 1 - NormalDist(expected, sqrt(expected)).cdf(times - 0.5)
    term = exp(-expected)
    below = 0.0
    for k in range(times):
        below += term
        term *= expected / (k + 1)
    return max(1.0 - below, 0.0)
