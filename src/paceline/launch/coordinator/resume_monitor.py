"""Follows a resume until every rank has made a step again, and keeps the exits of ranks that are judged while the next attempt runs."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.root_cause import signal_name, with_early_ends
from paceline.diagnosis.restarts import RESUMED
from paceline.facts import RankExit
from paceline.launch.job.messages import ResumedMessage
from paceline.launch.job.state import Resume, StartAttempt

# An agent judges an exit within seconds. A host that is lost never says how its ranks ended.
LATE_SECONDS = 10.0
_POLL_SECONDS = 0.05


@dataclass(slots=True)
class ResumeMonitor:
    """What is known of the newest resume, and of the exits of the attempts before."""

    record: Callable[..., None]
    """Writes an event."""
    offset_ns: Callable[[str], int]
    """Host -> how far its clock is ahead of this host's clock."""
    _resume: Resume | None = None
    _attempt: int = 0
    _missing: set[str] = field(default_factory=set)
    _stepped_ns: int = 0
    # Attempt -> rank -> how it ended.
    _judged: dict[int, dict[int, RankExit]] = field(default_factory=dict)

    def began(self, form: StartAttempt, resume: Resume | None) -> None:
        """An attempt begins. `resume`: what it goes on from; None: from the start of the script."""
        self._resume, self._attempt, self._stepped_ns = resume, form.attempt, 0
        self._missing = {placement.host for placement in form.placements}

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
        self.record(
            RESUMED,
            attempt=self._attempt,
            step=resume.step,
            rank=cause.rank,
            host=cause.host,
            signal=signal_name(-cause.code) if cause.code < 0 and not resume.hung else None,
            hung=resume.hung,
            seconds=round(max(0, self._stepped_ns - died_ns) / 1e9, 3),
            steps_again=max(0, resume.step_count - resume.step),
        )

    def exited(self, exit: RankExit) -> None:
        """Keep how a rank ended, as its agent has judged it."""
        self._judged.setdefault(exit.attempt, {})[exit.rank] = exit

    def as_judged(self, exits: Collection[RankExit]) -> tuple[RankExit, ...]:
        """The exits, in the same order, as far as they have been judged by now."""
        return tuple(self._judged.get(exit.attempt, {}).get(exit.rank, exit) for exit in exits)

    async def with_exits(self, case: Case, ranks: Collection[int]) -> Case:
        """The case of an attempt, with the exits of these ranks, which are waited for."""
        judged = self._judged.setdefault(case.attempt, {})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LATE_SECONDS
        while not set(ranks) <= set(judged) and loop.time() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        exits = tuple(judged.values())
        return replace(case, exits=with_early_ends(exits), tails={exit.rank: exit.tail for exit in exits if exit.tail})

    def forget(self, attempt: int) -> None:
        """Exits of this attempt and those before are not needed any more."""
        self._judged = {number: exits for number, exits in self._judged.items() if number > attempt}
