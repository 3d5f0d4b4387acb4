"""Watches the step times of the whole job: which ranks are late, where and since when, and when the job will end.

Every few seconds the monitor reads the ranks' flight recorders for their order of arrival. All other inputs are in the telemetry.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.diagnosis.case import Forecast, StepTiming
from paceline.diagnosis.slow.slowdown import is_settled
from paceline.diagnosis.slow.step_timing import LONGEST_WINDOW_SECONDS, StepTimer, standing_out, wants_snapshot
from paceline.diagnosis.time_limit import epochs_of, forecast, total_steps, will_be_cut
from paceline.facts import Job
from paceline.launch.coordinator.hang_monitor import HangMonitor
from paceline.launch.coordinator.pace_inputs import PaceInputs
from paceline.recording.lateness import LatenessFrame

TRACE_SECONDS = 10.0
# The interval and its duration at the start of an attempt, when people watch.
EARLY_SECONDS, EARLY_FOR_SECONDS = 5.0, 60.0
# How often finished entries are asked for: where they need the GIL, 2,000 of them hold it for 20 ms on a slow machine.
FINISHED_SECONDS = 15.0
TIMING_SECONDS = 30.0
# A step timing that says what the one before said is recorded as an event this seldom.
REPEAT_SECONDS = 600.0
SNAPSHOT_SECONDS = 60.0
# Of a job that stays slow in the same ranks, the time between two snapshots doubles up to this.
LONGEST_SNAPSHOT_SECONDS = 600.0
# A forecast is recorded again if the step at the time limit, or the expected end, has changed by more than this fraction.
MOVED_FRACTION = 0.1


@dataclass(slots=True)
class PaceMonitor:
    """The search for slow ranks and slow steps, and the forecast of the end."""

    job: Job
    """The job as the first host's command line describes it."""
    hang_monitor: HangMonitor
    """Reads flight recorders, takes snapshots of ranks and judges."""
    record: Callable[..., None]
    """Writes an event."""
    started_ns: int | None = None
    """When the ranks of the first attempt were started, in Unix ns; None: they were not started yet."""
    inputs: PaceInputs = field(default_factory=PaceInputs)
    """Keeps the inputs of the step timing, if PACELINE_KEEP_TEMPO_INPUTS is set."""
    keep_timing: Callable[[StepTiming], None] = lambda timing: None
    """Writes the newest step timing to the recording, over the one before."""
    keep_lateness: Callable[[LatenessFrame], None] = lambda frame: None
    """Appends how late the ranks were in the newest steps to the recording."""
    _tracker: StepTimer = field(default_factory=StepTimer)
    _forecast: Forecast | None = None
    _began_at: float = 0.0
    _timing_due: float = 0.0
    _snapshots_at: float = -SNAPSHOT_SECONDS
    _snapshot_seconds: float = SNAPSHOT_SECONDS
    _last_suspects: tuple[int, ...] = ()
    _told: StepTiming | None = None
    _told_at: float = 0.0
    # Up to where the lateness was recorded.
    _late_step: int = 0
    _late_ns: int = 0
    _finished_due: float = 0.0

    def attempt_started(self) -> None:
        """Begin a new attempt, and forget the previous attempt."""
        if self.started_ns is None:
            self.started_ns = time.time_ns()
        self._tracker = StepTimer()
        self._began_at = time.monotonic()
        self._told, self._late_step, self._late_ns, self._finished_due = None, 0, 0, 0.0

    def telemetry(self, host: str, lines: Iterable[dict[str, Any]]) -> None:
        """Take samples of one host, each with the progress of its ranks."""
        for line in lines:
            t_ns, progress = line.get("t_ns"), line.get("progress")
            if isinstance(t_ns, int) and isinstance(progress, dict):
                here_ns = t_ns - self.hang_monitor.offset_ns(host)
                self.inputs.telemetry(host, here_ns, line)
                self._tracker.progress(host, here_ns, progress)
            self._tracker.telemetry(host, line)

    async def watch(self) -> None:
        """Watch until cancelled. An error in the monitor is recorded and never ends the job."""
        while True:
            await asyncio.sleep(EARLY_SECONDS if self._is_early() else TRACE_SECONDS)
            try:
                await self.turn()
            except Exception as error:
                self.hang_monitor.say_failed(error)

    async def turn(self) -> None:
        """Read the flight recorders, then record and judge the step timing, unless the job stands still."""
        if self.hang_monitor.stall_tracker is not None or self.hang_monitor.ending or not self.hang_monitor.heartbeats:
            return
        now = time.monotonic()
        wants_finished = now >= self._finished_due
        if wants_finished:
            self._finished_due = now + FINISHED_SECONDS
        traces = await self.hang_monitor.traces(finished=wants_finished)
        await self.hang_monitor.compare(traces)
        for rank, entries in traces.items():
            self.inputs.trace(rank, entries)
            self._tracker.trace(rank, entries)
            await asyncio.sleep(0)
        now_ns = time.time_ns()
        self.inputs.turn(now_ns)
        timing = self._tracker.timing(now_ns)
        if timing is None:
            return
        self._keep_lateness(timing)
        self._forecast_from(timing)
        now = asyncio.get_running_loop().time()
        if now >= self._timing_due:
            # A step timing that is not settled yet is not judged, so the next turn may record again.
            self._timing_due = now + (TIMING_SECONDS if is_settled(timing) else 0.0)
            await self._tell(timing, now)

    def _is_early(self) -> bool:
        return time.monotonic() - self._began_at < EARLY_FOR_SECONDS

    def _keep_lateness(self, timing: StepTiming) -> None:
        found = self._tracker.late_after(self._late_step)
        if found is None or timing.step_seconds <= 0:
            return
        longest_ns = round(LONGEST_WINDOW_SECONDS * 1e9)
        self.keep_lateness(
            LatenessFrame(
                attempt=self.hang_monitor.attempt,
                from_ns=max(self._late_ns, timing.at_ns - longest_ns),
                to_ns=timing.at_ns,
                from_step=found.from_step,
                to_step=found.to_step,
                step_ns=round(timing.step_seconds * 1e9),
                late={rank: seconds / timing.step_seconds for rank, seconds in found.late.items()},
                last=found.last,
            )
        )
        self._late_step, self._late_ns = found.to_step, timing.at_ns

    async def _tell(self, timing: StepTiming, now: float) -> None:
        """Record the step timing: the whole of it in a file of its own, and as an event what stands out, if it says something new."""
        timing = replace(timing, attempt=self.hang_monitor.attempt)
        self.keep_timing(timing)
        if self._told is None or now >= self._told_at + REPEAT_SECONDS or _has_changed(self._told, timing):
            self._told, self._told_at = timing, now
            self.record("tempo", attempt=timing.attempt, tempo=standing_out(timing))
        self.hang_monitor.timing = timing
        wanted = wants_snapshot(timing)
        is_same = wanted == self._last_suspects
        if wanted and now >= self._snapshots_at + (self._snapshot_seconds if is_same else SNAPSHOT_SECONDS):
            self._snapshot_seconds = (
                min(2 * self._snapshot_seconds, LONGEST_SNAPSHOT_SECONDS) if is_same else SNAPSHOT_SECONDS
            )
            self._last_suspects, self._snapshots_at = wanted, now
            self.hang_monitor.record_snapshots(*await self.hang_monitor.take_snapshots(wanted))
        await self.hang_monitor.judge(self.hang_monitor.case(lasts=True))

    def _forecast_from(self, timing: StepTiming) -> None:
        if self.started_ns is None:
            return
        found = forecast(
            timing,
            now_ns=time.time_ns(),
            started_ns=self.started_ns,
            limit_seconds=self.job.max_run_seconds,
            total=total_steps(
                self.job.total_steps,
                epochs_of(self.job.contract.hyperparameters, self.job.program.arguments),
                self.hang_monitor.loader_batches(),
            ),
        )
        if found is not None and self._is_news(found):
            self._forecast = found
            self.record("forecast", attempt=self.hang_monitor.attempt, forecast=found)

    def _is_news(self, found: Forecast) -> bool:
        before = self._forecast
        if before is None or will_be_cut(before) != will_be_cut(found):
            return True
        now, then = _end_of(found), _end_of(before)
        return abs(now - then) > MOVED_FRACTION * max(then, 1)


def _has_changed(before: StepTiming, now: StepTiming) -> bool:
    """Whether a step timing says something that the one before did not say."""
    worth = MOVED_FRACTION * before.step_seconds
    held_up = [timing.held_up.ranks if timing.held_up is not None else None for timing in (before, now)]
    return (
        is_settled(before) != is_settled(now)
        or held_up[0] != held_up[1]
        or abs(now.step_seconds - before.step_seconds) > worth
        or abs((now.spread_seconds or 0.0) - (before.spread_seconds or 0.0)) > worth
    )


def _end_of(found: Forecast) -> float:
    """The step at the time limit; without a limit the seconds that the job takes."""
    return found.needed_seconds or 0.0 if found.reaches_step is None else float(found.reaches_step)
