"""What is the matter with a run at one moment: the one function that every view of a run's state asks.

It takes what the run told while it lasted, and judges nothing anew: a list shows a hundred runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paceline.diagnosis.case import Level, Stall
from paceline.diagnosis.verdict import reading_order
from paceline.facts import Run, SecondaryStatus, Status
from paceline.findings import CauseFinding, Confidence
from paceline.recording.fact_json import fact_or_none

Event = Mapping[str, Any]
# Over once the ranks continue.
_OVER = frozenset({Level.STALL, Level.WAITING})
# What can end a run, and what can make it miss its limit; what makes the numbers of a completed one wrong or worse.
_FATAL = frozenset({Level.DIVERGENCE, Level.CRASH, Level.START, Level.STALL})
_TOO_SLOW = _FATAL | {Level.SLOW, Level.WAITING}
_COMPLETED = frozenset({Level.DIVERGENCE, Level.QUALITY})
_LASTING = _FATAL | _OVER | _COMPLETED
_STANDS = ("waits", "stands still", "hangs")
_ENDED = {Status.COMPLETED: "done", Status.STOPPED: "stopped", Status.FAILED: "failed"}


class Tone(StrEnum):
    """How bad a state is, as a reader must see it at a glance."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment."""

    word: str
    """running, waits (the late ranks make progress), stands still, hangs (that is confirmed), stopping, done, stopped, failed, dead (its
    agent is gone without a report), unknown (neither run.json nor an event is there)."""
    tone: Tone
    """How bad it is."""
    stall: Stall | None = None
    """The stall that lasts, or lasted when the run ended."""
    findings: tuple[CauseFinding, ...] = ()
    """What was told and explains the state, as it is to be read."""

    @property
    def finding(self) -> CauseFinding | None:
        """The first of them."""
        return next(iter(self.findings), None)

    @property
    def lasting_stall(self) -> Stall | None:
        """The stall of a run that lasts: no step ends."""
        return self.stall if self.word in _STANDS else None


def run_state(run: Run, events: Iterable[Event]) -> RunState:
    """The state of a run whose events are these."""
    told = _NewestAttempt()
    for event in events:
        told.take(event)
    word, levels = _word(run, told), _levels(run)
    findings = tuple(sorted((one for one in told.causes.values() if one.level in levels), key=reading_order))
    return RunState(word, _tone(word, findings), told.stall, findings)


def how_it_ended(run: Run) -> str:
    """done, failed, stopped, dead or unknown, as in RunState; empty while the run lasts."""
    if run.status is Status.IN_PROGRESS and not run.started_ns:
        return "unknown"
    if run.status is Status.FAILED and run.finished_ns is None:
        return "dead"
    return _ENDED.get(run.status, "")


class _NewestAttempt:
    """What it has told so far."""

    def __init__(self) -> None:
        self.causes: dict[tuple[str, tuple[int, ...]], CauseFinding] = {}
        self.stall: Stall | None = None
        self.is_confirmed = False

    def take(self, event: Event) -> None:
        match event.get("event"):
            case "attempt_started":
                self.causes, self.stall, self.is_confirmed = {}, None, False
            case "standstill_over":
                self.causes = {key: finding for key, finding in self.causes.items() if finding.level not in _OVER}
                self.stall, self.is_confirmed = None, False
            case "standstill":
                self.stall = fact_or_none(Stall, event.get("standstill")) or self.stall
            case "hang_confirmed":
                self.is_confirmed = True
            case "cause" if not event.get("resumed"):
                if (finding := fact_or_none(CauseFinding, event.get("finding"))) is not None:
                    self.causes[finding.code, finding.ranks] = finding


def _levels(run: Run) -> frozenset[Level]:
    """Levels of the findings that may explain the state. Slow ones may be over, and count where a limit was reached."""
    if run.status is Status.COMPLETED:
        return _COMPLETED
    if run.status in (Status.IN_PROGRESS, Status.STOPPING):
        return _LASTING
    return _TOO_SLOW if run.secondary_status is SecondaryStatus.MAX_RUNTIME_EXCEEDED else _FATAL


def _word(run: Run, told: _NewestAttempt) -> str:
    word = how_it_ended(run)
    if word:
        return word
    if run.status is Status.STOPPING:
        return "stopping"
    if told.stall is None:
        return "running"
    if told.stall.level is Level.WAITING:
        return "waits"
    return "hangs" if told.is_confirmed else "stands still"


def _tone(word: str, findings: tuple[CauseFinding, ...]) -> Tone:
    if word in ("failed", "dead", "hangs"):
        return Tone.BAD
    surest = findings[0] if findings else None
    if word == "stands still" and surest is not None and surest.confidence is Confidence.HIGH:
        return Tone.BAD
    is_good = word in ("running", "done") and (surest is None or surest.level is Level.QUALITY)
    return Tone.GOOD if is_good else Tone.WARN
