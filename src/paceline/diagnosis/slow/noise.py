"""Effect of chance on a mean, a fraction or a count: the bounds for every statistical claim. Pure.

Successive steps are alike, because a disturbance of a machine lasts for many of them, so single steps are no independent samples.
They are grouped into blocks of consecutive steps, and the spread of the blocks gives the uncertainty of their mean (batch means).
If successive blocks still resemble each other, the interval is widened as if there were fewer blocks.

Source:  Law, "Simulation Modeling and Analysis", section 9.5.3, batch means; Abramowitz and Stegun, 26.7.5 (quantile of Student's t);
         Bonferroni's inequality for several comparisons at once
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import comb, exp, sqrt
from statistics import NormalDist, fmean, variance

from paceline.diagnosis.case import Estimate

# Probability of a false claim, for all comparisons of one judgement together.
ALPHA = 1e-3
LEAST_BLOCKS, MOST_BLOCKS = 8, 20
# Blocks more alike than this are one long disturbance, whose frequency is unknown.
_MOST_ALIKE = 0.8
# For more events, a normal distribution is as good as a Poisson distribution.
_MANY_EVENTS = 500


def blocks(
    values: Sequence[float], middle: Callable[[Sequence[float]], float] = fmean, *, least: int = 2
) -> list[float]:
    """The middle of each of up to MOST_BLOCKS equal blocks of consecutive values; empty if there are fewer than LEAST_BLOCKS.

    `least`: values in a block; 1 if each value is a mean over many steps already.

    Holds:   values that do not fill the blocks are left out at the beginning
    """
    count = min(MOST_BLOCKS, len(values) // least)
    if count < LEAST_BLOCKS:
        return []
    size = len(values) // count
    first = len(values) - size * count
    return [middle(values[at : at + size]) for at in range(first, len(values), size)]


def estimate(means: Sequence[float], comparisons: int = 1) -> Estimate | None:
    """The mean of these blocks with its interval; None if there are fewer than LEAST_BLOCKS.

    `comparisons`: number of such means that are tested. Each bound is wrong with a probability of ALPHA divided by that number.
    """
    if len(means) < LEAST_BLOCKS:
        return None
    mean = fmean(means)
    error = sqrt(variance(means, mean) / len(means) * _inflation(means, mean))
    off = student_quantile(1 - ALPHA / max(comparisons, 1), len(means) - 1) * error
    return Estimate(seconds=mean, low=mean - off, high=mean + off, blocks=len(means))


def _inflation(means: Sequence[float], mean: float) -> float:
    """Factor by which the variance of the mean exceeds that of independent blocks, from the correlation of neighbours."""
    whole = sum((one - mean) ** 2 for one in means)
    if not whole:
        return 1.0
    alike = sum((one - mean) * (other - mean) for one, other in pairwise(means)) / whole
    alike = min(max(alike, 0.0), _MOST_ALIKE)
    return (1 + alike) / (1 - alike)


def student_quantile(p: float, degrees: int) -> float:
    """The p quantile of Student's t with this number of degrees of freedom.

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
    """Probability that an event with this frequency occurs at least `times` times of `of`: the tail of a binomial distribution."""
    return min(sum(comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(times, of + 1)), 1.0)


def chance_of_count(times: int, expected: float) -> float:
    """Probability of at least `times` events if this number is expected: the tail of a Poisson distribution.

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
