"""How far the ranks of a host without shared storage are, second by second, from the telemetry that it streamed to the first host.

Every tenth line has all totals (`progress`: rank -> the fields of its RankRecord). The others have `steps`: rank -> attempt, number of
steps, their total time and their exposed communication in seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.facts import RankRecord

_LONGEST_SECONDS = 1e12


@dataclass(frozen=True, slots=True)
class StepTotals:
    """A rank's totals at a moment."""

    t_ns: int
    """When, Unix time."""
    attempt: int
    """The attempt, counted from 0."""
    step_count: int
    """Finished steps."""
    step_seconds: float
    """Their time."""
    communication_seconds: float | None
    """Their exposed communication; None: not known."""


def short_progress(progress: Any) -> dict[str, list[Any]]:
    """What a line keeps of the totals of its ranks."""
    found: dict[str, list[Any]] = {}
    for rank, one in progress.items() if isinstance(progress, Mapping) else ():
        if isinstance(one, Mapping) and one.get("step_count"):
            seconds, communication = (_rounded(one.get(name)) for name in ("step_seconds", "communication_seconds"))
            found[str(rank)] = [one.get("attempt"), one["step_count"], seconds, communication]
    return found


def step_totals(line: Mapping[str, Any]) -> dict[int, StepTotals]:
    """Rank -> its totals in a line of either kind; what is malformed is passed over."""
    t_ns, found = line.get("t_ns"), {}
    if not isinstance(t_ns, int):
        return {}
    for rank, values in _told(line):
        attempt, count, seconds, communication = values
        are_numbers = _is_count(attempt) and _is_count(count) and _is_seconds(seconds)
        if rank.isdecimal() and are_numbers:
            known = communication if _is_seconds(communication) else None
            found[int(rank)] = StepTotals(t_ns, attempt, count, float(seconds), known)
    return found


def brought_forward(record: RankRecord, lines: Iterable[Mapping[str, Any]]) -> RankRecord:
    """The record with the newest totals in these lines, newest first, if they are newer."""
    for line in lines:
        found = step_totals(line).get(record.rank)
        if found is not None and found.attempt == record.attempt:
            if found.step_count <= (record.step_count or 0):
                return record
            return replace(
                record,
                step_count=found.step_count,
                step_seconds=found.step_seconds,
                communication_seconds=found.communication_seconds if record.communication_seconds is not None else None,
                last_step_ns=found.t_ns,
            )
    return record


def _told(line: Mapping[str, Any]) -> list[tuple[str, Sequence[Any]]]:
    short, whole = line.get("steps"), line.get("progress")
    if isinstance(short, Mapping):
        return [(str(rank), one) for rank, one in short.items() if isinstance(one, list) and len(one) == 4]
    names = ("attempt", "step_count", "step_seconds", "communication_seconds")
    return [
        (str(rank), [one.get(name) for name in names])
        for rank, one in (whole.items() if isinstance(whole, Mapping) else ())
        if isinstance(one, Mapping)
    ]


def _rounded(seconds: Any) -> Any:
    return round(seconds, 4) if isinstance(seconds, float) else seconds


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LONGEST_SECONDS
