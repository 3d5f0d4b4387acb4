"""Follows a resume until every rank has made a step again, and records what it cost."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from paceline.diagnosis.crash.root_cause import signal_name
from paceline.diagnosis.restart_costs import RESUMED, Resumption
from paceline.launch.job.messages import ResumedMessage, StartAttemptMessage
from paceline.launch.job.state import Resume


@dataclass(slots=True)
class ResumeMonitor:
    """What is known of the newest resume."""

    record: Callable[..., None]
    """Writes an event."""
    offset_ns: Callable[[str], int]
    """Host -> how far its clock is ahead of this host's clock."""
    _resume: Resume | None = None
    _attempt: int = 0
    _missing: set[str] = field(default_factory=set)
    _stepped_ns: int = 0

    def began(self, start: StartAttemptMessage, resume: Resume | None) -> None:
        """An attempt begins. `resume`: what it goes on from; None: from the start of the script."""
        self._resume, self._attempt, self._stepped_ns = resume, start.attempt, 0
        self._missing = {placement.host for placement in start.placements}

    def take(self, host: str, message: ResumedMessage) -> None:
        """Every rank of a host has made a step again. The last host completes the resume."""
        resume = self._resume
        if resume is None or message.attempt != self._attempt or host not in self._missing:
            return
        self._missing.discard(host)
        self._stepped_ns = max(self._stepped_ns, message.stepped_ns - self.offset_ns(host))
        if self._missing:
            return
        cause = resume.cause
        if cause is None:
            return
        died_ns = cause.time_ns - self.offset_ns(cause.host)
        resumed = Resumption(
            attempt=self._attempt,
            step=resume.step,
            rank=cause.rank,
            host=cause.host,
            signal=signal_name(-cause.code) if cause.code < 0 and not resume.hung else None,
            hung=resume.hung,
            seconds=round(max(0, self._stepped_ns - died_ns) / 1e9, 3),
            steps_again=max(0, resume.step_count - resume.step),
        )
        self.record(RESUMED, **asdict(resumed))
