"""How fast the ranks go and where their time goes: the arithmetic that the live line, `top` and the summary share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from paceline.facts import RankRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPace:
    """One rank over the time looked at. Fractions are of its time in steps; None is unknown."""

    host: str
    rank: int
    step: int | None = None
    step_seconds: float | None = None
    own_seconds: float | None = None
    data_fraction: float | None = None
    communication_fraction: float | None = None
    checkpoint_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The ranks of the newest attempt together.

    `step` is that of the rank furthest behind. `spread` is the slowest rank's own time a step (its step without the time it
    waited in communication, where a fast rank waits for a slow one) over the median rank's; `slowest` is that rank.
    """

    ranks: tuple[RankPace, ...] = ()
    ranks_here: int = 0
    ranks_wanted: int | None = None
    step: int | None = None
    step_seconds: float | None = None
    data_fraction: float | None = None
    communication_fraction: float | None = None
    checkpoint_fraction: float | None = None
    spread: float | None = None
    slowest: RankPace | None = None


def pace(now: Sequence[RankRecord], before: Sequence[RankRecord] = (), *, ranks_wanted: int | None = None) -> Pace:
    """The pace between two looks at the same ranks; over each rank's whole life where `before` does not hold it.

    Holds: pace(ranks, ranks).step_seconds is None
    """
    newest = max((record.attempt for record in now), default=0)
    current = [record for record in now if record.attempt == newest]
    earlier = {(record.attempt, record.host, record.rank, record.pid): record for record in before}
    ranks = tuple(
        _rank_pace(record, earlier.get((record.attempt, record.host, record.rank, record.pid))) for record in current
    )
    slowest, spread = _slowest(ranks)
    worlds = [record.world_size for record in current if record.world_size]
    return Pace(
        ranks=ranks,
        ranks_here=sum(record.exit is None for record in current),
        ranks_wanted=ranks_wanted or max(worlds, default=len(current) or None),
        step=min((rank.step for rank in ranks if rank.step is not None), default=None),
        step_seconds=_median(rank.step_seconds for rank in ranks),
        data_fraction=_mean(rank.data_fraction for rank in ranks),
        communication_fraction=_mean(rank.communication_fraction for rank in ranks),
        checkpoint_fraction=_mean(rank.checkpoint_fraction for rank in ranks),
        spread=spread,
        slowest=slowest,
    )


def _rank_pace(now: RankRecord, before: RankRecord | None) -> RankPace:
    steps = _since(now, before, lambda record: record.step_count)
    seconds = _since(now, before, lambda record: record.step_seconds)
    if not steps or not seconds:
        return RankPace(host=now.host, rank=now.rank, step=now.step_count)
    communication = _since(now, before, lambda record: record.communication_seconds)
    data = _since(now, before, lambda record: record.data_seconds)
    checkpoint = _since(now, before, lambda record: record.checkpoint_seconds)
    return RankPace(
        host=now.host,
        rank=now.rank,
        step=now.step_count,
        step_seconds=seconds / steps,
        own_seconds=max(seconds - (communication or 0.0), 0.0) / steps,
        data_fraction=_fraction(data, seconds),
        communication_fraction=_fraction(communication, seconds),
        checkpoint_fraction=_fraction(checkpoint, seconds),
    )


def _since(
    now: RankRecord, before: RankRecord | None, value: Callable[[RankRecord], float | None]
) -> float | None:
    total, earlier = value(now), value(before) if before is not None else 0
    return None if total is None else total - (earlier or 0)


def _slowest(ranks: Iterable[RankPace]) -> tuple[RankPace | None, float | None]:
    known = [rank for rank in ranks if rank.own_seconds]
    if len(known) < 2:
        return None, None
    slowest = max(known, key=lambda rank: rank.own_seconds or 0.0)
    middle = median(rank.own_seconds or 0.0 for rank in known)
    return slowest, (slowest.own_seconds or 0.0) / middle


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent:
    """Seconds of a run's wall time by what a mean rank did in them. None is not judged.

    Holds: data + communication + checkpoint + compute == step_seconds; step_seconds + lost == wall, where all are known
    """

    wall_seconds: float | None = None
    step_count: int | None = None
    step_seconds: float | None = None
    compute_seconds: float | None = None
    data_seconds: float | None = None
    communication_seconds: float | None = None
    checkpoint_seconds: float | None = None
    lost_seconds: float | None = None


def time_spent(ranks: Sequence[RankRecord], wall_seconds: float | None) -> TimeSpent:
    """Where the wall time of a run went, attempts one after the other, ranks of one attempt averaged."""
    attempts = [
        [record for record in ranks if record.attempt == attempt and record.step_seconds is not None]
        for attempt in sorted({record.attempt for record in ranks})
    ]
    attempts = [records for records in attempts if records]
    if not attempts:
        return TimeSpent(wall_seconds=wall_seconds)
    step = _over_attempts(attempts, lambda record: record.step_seconds)
    data = _over_attempts(attempts, lambda record: record.data_seconds)
    communication = _over_attempts(attempts, lambda record: record.communication_seconds)
    checkpoint = _over_attempts(attempts, lambda record: record.checkpoint_seconds)
    compute = None
    if None not in (step, data, communication, checkpoint):
        compute = max((step or 0.0) - (data or 0.0) - (communication or 0.0) - (checkpoint or 0.0), 0.0)
    return TimeSpent(
        wall_seconds=wall_seconds,
        step_count=sum(max(record.step_count or 0 for record in records) for records in attempts),
        step_seconds=step,
        compute_seconds=compute,
        data_seconds=data,
        communication_seconds=communication,
        checkpoint_seconds=checkpoint,
        lost_seconds=None if wall_seconds is None or step is None else max(wall_seconds - step, 0.0),
    )


def _over_attempts(
    attempts: Sequence[Sequence[RankRecord]], value: Callable[[RankRecord], float | None]
) -> float | None:
    means = [_mean(value(record) for record in records) for records in attempts]
    known = [mean for mean in means if mean is not None]
    return sum(known) if len(known) == len(means) else None


def _fraction(part: float | None, whole: float) -> float | None:
    return None if part is None else part / whole


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
