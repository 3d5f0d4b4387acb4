"""Step times of the ranks and where their time goes: the arithmetic that the live line, `top` and the summary share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from paceline.diagnosis.slow.steady_step import steady_step_of
from paceline.diagnosis.time_breakdown import mean_of_known
from paceline.facts import RankRecord

# With fewer steps the ratio of two ranks is chance.
_LEAST_STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPace:
    """One rank over the window. Fractions are of its time in steps. None: not known."""

    host: str
    """Its host."""
    rank: int
    """Global rank."""
    step: int | None = None
    """Its newest step."""
    step_seconds: float | None = None
    """Mean duration of a step."""
    own_seconds: float | None = None
    """Mean duration without communication."""
    loading_fraction: float | None = None
    """Fraction of waiting for data."""
    exposed_communication_fraction: float | None = None
    """Fraction of exposed communication."""
    checkpoint_fraction: float | None = None
    """Fraction of saving checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The ranks of the newest attempt together. Fractions are of the ranks' time in steps."""

    ranks: tuple[RankPace, ...] = ()
    """Pace of each rank."""
    step_counts: tuple[int, ...] = ()
    """Steps of each rank in the window."""
    ranks_here: int | None = None
    """Ranks that have arrived."""
    ranks_wanted: int | None = None
    """Ranks that the job needs."""
    step: int | None = None
    """Step of the rank that is furthest behind."""
    step_seconds: float | None = None
    """Duration of a step."""
    loading_fraction: float | None = None
    """Fraction of waiting for data."""
    exposed_communication_fraction: float | None = None
    """Fraction of exposed communication."""
    checkpoint_fraction: float | None = None
    """Fraction of saving checkpoints."""
    samples_per_second: float | None = None
    """Samples of all ranks together, if every batch is full; None unless it is known of each rank."""
    spread: float | None = None
    """The slowest rank's own time of a step (without communication, where a fast rank waits for a slow one) over
    the median rank's."""
    slowest: RankPace | None = None
    """That slowest rank."""


def pace(
    now: Sequence[RankRecord],
    before: Sequence[RankRecord] = (),
    *,
    ranks_wanted: int | None = None,
    ended: bool = False,
) -> Pace:
    """The pace between two samples of the same ranks. For a rank that is not in `before` it is over the rank's whole life, and its
    step is then without the warm-up.

    The ranks' own world size counts if it is larger: a script may start more ranks than the launcher started processes.
    `ended`: for a run that is over, arrived ranks are not counted.

    Holds: pace(ranks, ranks).step_seconds is None
    """
    newest = max((record.attempt for record in now), default=0)
    current = [record for record in now if record.attempt == newest]
    earlier = {(record.attempt, record.host, record.rank, record.pid): record for record in before}
    since = [earlier.get((record.attempt, record.host, record.rank, record.pid)) for record in current]
    ranks = tuple(map(_rank_pace, current, since))
    counts = tuple(
        int(_since(*both, lambda record: record.step_count) or 0) for both in zip(current, since, strict=True)
    )
    slowest, spread = _slowest(rank for rank, count in zip(ranks, counts, strict=True) if count >= _LEAST_STEPS)
    worlds = [record.world_size for record in current if record.world_size]
    step_seconds = _median(rank.step_seconds for rank in ranks)
    return Pace(
        ranks=ranks,
        step_counts=counts,
        ranks_here=None if ended else sum(record.exit is None for record in current),
        ranks_wanted=max([*worlds, ranks_wanted or 0]) or len(current) or None,
        step=min((rank.step for rank in ranks if rank.step is not None), default=None),
        step_seconds=step_seconds,
        loading_fraction=mean_of_known(rank.loading_fraction for rank in ranks),
        exposed_communication_fraction=mean_of_known(rank.exposed_communication_fraction for rank in ranks),
        checkpoint_fraction=mean_of_known(rank.checkpoint_fraction for rank in ranks),
        samples_per_second=samples_per_second(current, step_seconds),
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
        step_seconds=steady.seconds if before is None and (steady := steady_step_of(now)) else seconds / steps,
        own_seconds=max(seconds - (communication or 0.0), 0.0) / steps,
        loading_fraction=_fraction(data, seconds),
        exposed_communication_fraction=_fraction(communication, seconds),
        checkpoint_fraction=_fraction(checkpoint, seconds),
    )


def samples_per_second(records: Sequence[RankRecord], step_seconds: float | None) -> float | None:
    """Samples of all ranks together, if every batch is full; None unless it is known of each rank."""
    of_ranks = [_samples_per_step(record) for record in records]
    known = [samples for samples in of_ranks if samples is not None]
    return sum(known) / step_seconds if step_seconds and known and len(known) == len(of_ranks) else None


def _samples_per_step(record: RankRecord) -> int | None:
    """Samples that a rank trains on in a step: the batches of a step times their size.

    Batches of every loader are counted together. Where their number is no multiple of that of the steps, other loaders are read as
    well, and it is not known.
    """
    if not (record.batch_size and record.batches_taken and record.step_count):
        return None
    batches = round(record.batches_taken / record.step_count)
    is_of_steps_alone = batches > 0 and abs(record.batches_taken - batches * record.step_count) <= batches
    return batches * record.batch_size if is_of_steps_alone else None


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


def _fraction(part: float | None, whole: float) -> float | None:
    return None if part is None else part / whole


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
