"""Whether a rank delays the others, from all ranks' lateness step by step, and how certain that is. Pure.

In any step some rank is the last. So a rank is compared with the last of the *others*. If ranks are equally fast, the difference
is negative as often as positive, whichever rank was the last in how many steps.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from paceline.diagnosis.case import Estimate, HeldUp
from paceline.diagnosis.slow.noise import blocks, estimate

Costs = Mapping[int, Sequence[float]]


def held_up(costs: Costs, *, measured: bool, least: int = 2) -> HeldUp | None:
    """Which ranks delay the others. `costs`: rank -> how late it was in each step, the same steps for all ranks. None: too few steps.

    At most half of the ranks; if more are late, the others are early. Blocks are compared by their medians, so that single pauses make
    no rank late. `least`: values in a block.
    """
    if len(costs) < 2:
        return None
    late = _candidates(costs)
    known = False
    while late:
        others = _last(costs, costs.keys() - late)
        own = {rank: _behind(costs[rank], others, len(costs), least) for rank in late}
        known = known or any(found is not None for found in own.values())
        sure = {rank for rank, found in own.items() if found is not None and found.low > 0}
        if sure == late:
            gain = _behind(_last(costs, late), others, len(costs), least)
            return HeldUp(ranks=tuple(sorted(late)), gain=gain, measured=measured)
        late = sure
    return HeldUp(measured=measured) if known else None


def behind(costs: Costs, least: int = 2) -> dict[int, Estimate]:
    """Rank -> how much later it is than the last of the others, on average, so that single pauses count in proportion."""
    ordered = [sorted(column)[-2:] for column in zip(*costs.values(), strict=True)]
    found = {}
    for rank, own in costs.items():
        others = [most if cost < most else second for cost, (second, most) in zip(own, ordered, strict=True)]
        one = estimate(blocks([mine - other for mine, other in zip(own, others, strict=True)], least=least), len(costs))
        if one is not None:
            found[rank] = one
    return found


def _candidates(costs: Costs) -> set[int]:
    middle = {rank: median(own) for rank, own in costs.items() if own}
    most = max(middle.values(), default=0.0)
    late = {rank for rank, seconds in middle.items() if seconds >= most / 2}
    if len(late) <= len(costs) // 2:
        return late
    return set(sorted(middle, key=lambda rank: -middle[rank])[: len(costs) // 2])


def _last(costs: Costs, ranks: set[int]) -> list[float]:
    return [max(column) for column in zip(*(costs[rank] for rank in ranks), strict=True)]


def _behind(own: Sequence[float], others: Sequence[float], comparisons: int, least: int) -> Estimate | None:
    lags = [mine - other for mine, other in zip(own, others, strict=True)]
    return estimate(blocks(lags, median, least=least), comparisons)
