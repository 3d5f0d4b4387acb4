"""Strategies for the exchange of gradients, timed on one script: the fastest one beyond chance. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from paceline.parts.comm.planner.regression import Figure, spread

PLAIN = "plain"
# A smaller difference is run-to-run noise.
_LEAST_DIFFERENCE = 0.03
_DEVIATIONS = 3.0
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One run of the script with one strategy."""

    strategy: str
    """Name of the strategy."""
    run: str
    """Id of the run."""
    samples: tuple[float, ...]
    """Seconds of its steps after the warm-up, each the mean of its ranks."""
    exchange_seconds: float | None = None
    """Exposed communication of a step; None: not known."""
    said: str = ""
    """What the ranks reported about the strategy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTime:
    """One strategy over all its tries."""

    strategy: str
    """Name of the strategy."""
    is_exact: bool
    """Its average is exact."""
    step: Figure | None = None
    """Its step; None: it failed."""
    exchange_fraction: float | None = None
    """Exposed communication as a fraction of the step."""
    times_plain: float | None = None
    """Speed-up over plain DDP."""
    runs: tuple[str, ...] = ()
    """Ids of its runs."""
    said: str = ""
    """What the ranks reported about the strategy."""
    failure: str = ""
    """Why it failed."""


def strategy_time(
    strategy: str, tries: Sequence[Try], plain: Figure | None, *, is_exact: bool, failure: str = ""
) -> StrategyTime:
    """The tries as one figure: the median over the tries of each one's median step, with the larger of both spreads.

    Holds:   of plain itself times_plain == 1.0
    """
    if not tries:
        return StrategyTime(strategy=strategy, is_exact=is_exact, failure=failure or "it was not tried")
    step = combined([one.samples for one in tries])
    known = [one.exchange_seconds for one in tries if one.exchange_seconds is not None]
    reference = step if strategy == PLAIN else plain
    return StrategyTime(
        strategy=strategy,
        is_exact=is_exact,
        step=step,
        exchange_fraction=min(1.0, median(known) / step.seconds) if known and step.seconds else None,
        times_plain=reference.seconds / step.seconds if reference is not None and step.seconds else None,
        runs=tuple(one.run for one in tries),
        said=tries[-1].said,
        failure=failure,
    )


def combined(tries: Sequence[Sequence[float]]) -> Figure:
    """Median over the tries of the medians; deviation: the larger of that inside a try and that among tries. Seconds."""
    points = [spread(samples) for samples in tries]
    among = spread([one.seconds for one in points])
    return Figure(
        seconds=among.seconds,
        mad_seconds=max(median(one.mad_seconds for one in points), among.mad_seconds),
        count=sum(one.count for one in points),
    )


def fastest(times: Sequence[StrategyTime]) -> StrategyTime | None:
    """The strategy to take: the fastest exact one if it beats plain DDP beyond chance; None: stay with plain DDP.

    Chance is 3 % or three standard errors of both medians, whichever is more.
    """
    plain = next((one for one in times if one.strategy == PLAIN), None)
    exact = [one for one in times if one.is_exact and one.step is not None]
    if plain is None or plain.step is None or not exact:
        return None
    best = min(exact, key=lambda one: one.step.seconds if one.step else 0.0)
    assert best.step is not None
    limit = max(_LEAST_DIFFERENCE, _DEVIATIONS * (_error(plain.step) + _error(best.step)) / plain.step.seconds)
    return best if best.step.seconds < plain.step.seconds * (1 - limit) else None


def _error(point: Figure) -> float:
    return 1.2533 * _MAD_TO_DEVIATION * point.mad_seconds / math.sqrt(max(1, point.count))
