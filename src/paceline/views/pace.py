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
    ranks_here: int | None = None
    ranks_wanted: int | None = None
    step: int | None = None
    step_seconds: float | None = None
    data_fraction: float | None = None
    communication_fraction: float | None = None
    checkpoint_fraction: float | None = None
    spread: float | None = None
    slowest: RankPace | None = None


def pace(
    now: Sequence[RankRecord],
    before: Sequence[RankRecord] = (),
    *,
    ranks_wanted: int | None = None,
    ended: bool = False,
) -> Pace:
    """The pace between two looks at the same ranks; over each rank's whole life where `before` does not hold it.

    The ranks' own world size counts where it is the larger one: a script may start more ranks than the launcher started processes.
    `ended`: of a run that is over nobody is asked whether its ranks are here.

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
        ranks_here=None if ended else sum(record.exit is None for record in current),
        ranks_wanted=max([*worlds, ranks_wanted or 0]) or len(current) or None,
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


def _since(now: RankRecord, before: RankRecord | None, value: Callable[[RankRecord], float | None]) -> float | None:
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

    Lost is what was in no step: before the first step began, between attempts, after the last step.

    Holds: data + communication + checkpoint + compute == step_seconds; step_seconds + lost == wall;
           startup + restarts + end == lost, where all are known
    """

    wall_seconds: float | None = None
    step_count: int | None = None
    step_seconds: float | None = None
    compute_seconds: float | None = None
    data_seconds: float | None = None
    communication_seconds: float | None = None
    checkpoint_seconds: float | None = None
    lost_seconds: float | None = None
    startup_seconds: float | None = None
    restarts_seconds: float | None = None
    end_seconds: float | None = None


def time_spent(ranks: Sequence[RankRecord], started_ns: int | None, end_ns: int | None) -> TimeSpent:
    """Where the wall time of a run went, attempts one after the other, ranks of one attempt averaged."""
    wall_seconds = (end_ns - started_ns) / 1e9 if started_ns and end_ns else None
    attempts = [
        [
            record
            for record in ranks
            if record.attempt == attempt and record.step_count and record.step_seconds is not None
        ]
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
    outside = _over_attempts(attempts, lambda record: record.checkpoint_outside_seconds)
    if checkpoint is not None:
        checkpoint += outside or 0.0
    lost = None if wall_seconds is None or step is None else max(wall_seconds - step - (outside or 0.0), 0.0)
    startup, end = _startup(attempts[0], started_ns), _end(attempts[-1], end_ns)
    return TimeSpent(
        wall_seconds=wall_seconds,
        step_count=sum(max(record.step_count or 0 for record in records) for records in attempts),
        step_seconds=step,
        compute_seconds=compute,
        data_seconds=data,
        communication_seconds=communication,
        checkpoint_seconds=checkpoint,
        lost_seconds=lost,
        startup_seconds=startup,
        restarts_seconds=None if lost is None or startup is None or end is None else max(lost - startup - end, 0.0),
        end_seconds=end,
    )


def _startup(records: Sequence[RankRecord], started_ns: int | None) -> float | None:
    """Until the first step began: steps follow one another, so that it began their total before the last one's end."""
    if not started_ns:
        return None
    began = [
        (record.last_step_ns - started_ns) / 1e9 - record.step_seconds
        for record in records
        if record.last_step_ns is not None and record.step_seconds is not None
    ]
    return max(fmean(began), 0.0) if began else None


def _end(records: Sequence[RankRecord], end_ns: int | None) -> float | None:
    ends = [(end_ns - record.last_step_ns) / 1e9 for record in records if record.last_step_ns and end_ns]
    return max(fmean(ends), 0.0) if ends else None


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
