"""Where the wall time of a run went, from the totals of its ranks. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.facts import RankRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent:
    """Seconds of a run's wall time by what a mean rank did in them. None: not judged.

    Holds:   data + communication + checkpoint + compute == step_seconds; step_seconds + lost == wall;
             startup + restarts + end == lost, if all are known
    """

    wall_seconds: float | None = None
    """From the start of the run to its end."""
    step_count: int | None = None
    """Steps."""
    step_seconds: float | None = None
    """Time in steps."""
    compute_seconds: float | None = None
    """The rest of the steps."""
    data_seconds: float | None = None
    """Waiting for data in steps."""
    communication_seconds: float | None = None
    """Exposed communication in steps."""
    checkpoint_seconds: float | None = None
    """Saving checkpoints in steps."""
    lost_seconds: float | None = None
    """Time outside steps."""
    startup_seconds: float | None = None
    """Before the first step."""
    restarts_seconds: float | None = None
    """Between attempts."""
    end_seconds: float | None = None
    """After the last step."""


def time_spent(ranks: Sequence[RankRecord], started_ns: int | None, end_ns: int | None) -> TimeSpent:
    """Where the wall time of a run went: the sum over attempts of the mean over each attempt's ranks."""
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
    """Time until the first step began. Steps follow one another, so it began their total duration before the end of the last one."""
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
    means = [mean_of_known(value(record) for record in records) for records in attempts]
    known = [mean for mean in means if mean is not None]
    return sum(known) if len(known) == len(means) else None


def mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
