"""Classes of time that are large and that no finding explains. They are listed as not judged: unknown is not healthy."""

from collections.abc import Iterable, Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.time_breakdown import TimeSpent, time_spent
from paceline.facts import Status
from paceline.findings import CauseFinding

_LARGE = 0.1
# Of less time in steps the shares are those of the start.
_LEAST_SECONDS = 10.0
# What loads or saves slowly; any of them also makes the other ranks wait in their collectives.
_OF_DATA = frozenset({"S02", "S03", "S04", "S05", "S17", "S18", "N03"})
_OF_CHECKPOINTS = frozenset({"S13", "S18"})


def unexplained_time(case: Case, findings: Iterable[CauseFinding]) -> Iterator[str]:
    """Each class that takes more than a tenth of the steps, and that none of these findings is about."""
    ended_ns = case.now_ns if case.lasts else case.run.finished_ns
    spent = time_spent(tuple(case.ranks.values()), case.run.started_ns, ended_ns)
    if spent.step_seconds is None or spent.step_seconds < _LEAST_SECONDS:
        return
    found = [finding for finding in findings if finding.level is not Level.QUALITY]
    codes = {finding.code for finding in found}
    for name, seconds, of_it in _classes(spent):
        share = (seconds or 0.0) / spent.step_seconds
        if share > _LARGE and not (codes & of_it if of_it else codes):
            yield f"{name}, {share:.0%} of the time in steps: no cause is found for it"
    lost = (spent.lost_seconds or 0.0) - (spent.startup_seconds or 0.0)
    whole = spent.step_seconds + lost
    if not found and case.run.status is Status.COMPLETED and lost > _LARGE * whole and lost > _LEAST_SECONDS:
        yield f"outside of steps, {lost / whole:.0%} of the time after the first one: no cause is found for it"


def _classes(spent: TimeSpent) -> Iterator[tuple[str, float | None, frozenset[str]]]:
    """Name, seconds, and the codes that explain it; none: any does."""
    yield "waiting for data", spent.data_seconds, _OF_DATA
    yield "exposed communication", spent.communication_seconds, frozenset()
    yield "saving checkpoints", spent.checkpoint_seconds, _OF_CHECKPOINTS
