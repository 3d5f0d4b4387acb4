"""Watches the step times of the whole job: which ranks are late, where and since when, and when the job will end.

Every few seconds the monitor reads the ranks' flight recorders for their order of arrival. All other inputs are in the telemetry.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.diagnosis.case import Forecast, StepTiming, to_plain
from paceline.diagnosis.slow.slowdown import is_settled
from paceline.diagnosis.slow.step_timing import StepTimer, wants_look
from paceline.diagnosis.time_limit import epochs_of, forecast, total_steps, will_be_cut
from paceline.facts import Job
from paceline.launch.coordinator.hang_monitor import HangMonitor
from paceline.launch.coordinator.pace_inputs import PaceInputs

TRACE_SECONDS = 10.0
# The interval and its duration at the start of an attempt, when people watch.
EARLY_SECONDS, EARLY_FOR_SECONDS = 5.0, 60.0
TEMPO_SECONDS = 30.0
LOOK_SECONDS = 60.0
# A forecast is recorded again if the step at the time limit, or the expected end, has changed by more than this fraction.
MOVED_FRACTION = 0.1


@dataclass(slots=True)
class PaceMonitor:
    """The search for slow ranks and slow steps, and the forecast of the end."""

    job: Job
    """The job as the first host's command line describes it."""
    detective: HangMonitor
    """Reads flight recorders, takes snapshots of ranks and judges."""
    record: Callable[..., None]
    """Writes an event."""
    started_ns: int | None = None
    """When the ranks of the first attempt were started, in Unix ns; None: they were not started yet."""
    inputs: PaceInputs = field(default_factory=PaceInputs)
    """Keeps the inputs of the step timing, if PACELINE_KEEP_TEMPO_INPUTS is set."""
    _tracker: StepTimer = field(default_factory=StepTimer)
    _forecast: Forecast | None = None
    _formed_at: float = 0.0
    _tempo_due: float = 0.0
    _look_due: float = 0.0

    def formed(self) -> None:
        """Begin a new attempt, and forget the previous attempt."""
        if self.started_ns is None:
            self.started_ns = time.time_ns()
        self._tracker = StepTimer()
        self._formed_at = time.monotonic()

    def telemetry(self, host: str, lines: Iterable[dict[str, Any]]) -> None:
        """Take samples of one host, each with the progress of its ranks."""
        for line in lines:
            t_ns, progress = line.get("t_ns"), line.get("progress")
            if isinstance(t_ns, int) and isinstance(progress, dict):
                here_ns = t_ns - self.detective.offset_ns(host)
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
                self.detective.say_failed(error)

    async def turn(self) -> None:
        """Read the flight recorders, then record and judge the step timing, unless the job stands still."""
        if self.detective.standing is not None or self.detective.ending or not self.detective.pulses:
            return
        traces = await self.detective.traces()
        await self.detective.compare(traces)
        for rank, entries in traces.items():
            self.inputs.trace(rank, entries)
            self._tracker.trace(rank, entries)
            await asyncio.sleep(0)
        now_ns = time.time_ns()
        self.inputs.turn(now_ns)
        tempo = self._tracker.tempo(now_ns)
        if tempo is None:
            return
        self._forecast_from(tempo)
        now = asyncio.get_running_loop().time()
        if now >= self._tempo_due:
            # A step timing that is not settled yet is not judged, so the next turn may record again.
            self._tempo_due = now + (TEMPO_SECONDS if is_settled(tempo) else 0.0)
            await self._tell(tempo, now)

    def _is_early(self) -> bool:
        return time.monotonic() - self._formed_at < EARLY_FOR_SECONDS

    async def _tell(self, tempo: StepTiming, now: float) -> None:
        self.record(
            "tempo",
            attempt=self.detective.attempt,
            tempo=to_plain(replace(tempo, attempt=self.detective.attempt)),
        )
        wanted = wants_look(tempo)
        if wanted and now >= self._look_due:
            self._look_due = now + LOOK_SECONDS
            self.detective.record_looks(*await self.detective.look(wanted))
        await self.detective.judge(self.detective.case(lasts=True))

    def _forecast_from(self, tempo: StepTiming) -> None:
        if self.started_ns is None:
            return
        found = forecast(
            tempo,
            now_ns=time.time_ns(),
            started_ns=self.started_ns,
            limit_seconds=self.job.max_run_seconds,
            total=total_steps(
                self.job.total_steps,
                epochs_of(self.job.contract.hyperparameters, self.job.program.arguments),
                self.detective.loader_batches(),
            ),
        )
        if found is not None and self._is_news(found):
            self._forecast = found
            self.record("forecast", attempt=self.detective.attempt, forecast=to_plain(found))

    def _is_news(self, found: Forecast) -> bool:
        before = self._forecast
        if before is None or will_be_cut(before) != will_be_cut(found):
            return True
        now, then = _end_of(found), _end_of(before)
        return abs(now - then) > MOVED_FRACTION * max(then, 1)


def _end_of(found: Forecast) -> float:
    """The step at the time limit; without a limit the seconds that the job takes."""
    return found.needed_seconds or 0.0 if found.reaches_step is None else float(found.reaches_step)
