"""Once a second: what this host's machine and ranks are doing, into the recording and to the first agent."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.launch.pump import LogTails
from paceline.launch.rings import Leaving, RingCollector
from paceline.launch.scratch import Scratch
from paceline.launch.workers import Workers
from paceline.probes.telemetry import Sampler
from paceline.recording.layout import RunDirectory
from paceline.recording.writer import JsonLines

INTERVAL_SECONDS = 1.0


@dataclass(slots=True)
class HostMonitor:
    """`on_lines` streams telemetry upward, and `tails` where there are any; `on_event` records each unreadable sensor once."""

    host: str
    directory: RunDirectory
    scratch: Scratch
    on_lines: Callable[[Literal["telemetry", "logs"], list[dict[str, Any]]], None]
    on_event: Callable[..., None]
    tails: LogTails | None = None
    sampler: Sampler = field(default_factory=Sampler)
    rings: RingCollector | None = None
    workers: Workers | None = None
    interval_seconds: float = INTERVAL_SECONDS
    _task: asyncio.Task[None] | None = None
    _telemetry: JsonLines | None = None
    _said_missing: set[str] = field(default_factory=set)
    # One sample at a time: sensors, rings and the telemetry file are read and written in a thread, and closed here.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def start(self) -> None:
        self._telemetry = JsonLines(self.directory.telemetry_file(self.host))
        self._task = asyncio.get_running_loop().create_task(self._run())

    def begin_attempt(self, attempt: int, workers: Workers) -> None:
        self.workers = workers
        self.rings = RingCollector(self.scratch.rings, self.directory, self.host, attempt)

    async def end_attempt(self) -> None:
        """Take what the rings still hold; they outlive their processes."""
        if self.rings is not None:
            async with self._turn:
                await self._sample(final=True)
                self.rings.close()

    def rank_pids(self) -> list[int]:
        """Processes that joined a process group or count steps, as their rings say."""
        if self.rings is None:
            return []
        self.rings.look()
        return self.rings.pids()

    def last_words(self, pid: int) -> Leaving | None:
        """What the process said when its program was done; None when it never came so far, or was no rank."""
        if self.rings is None:
            return None
        self.rings.look()
        return self.rings.exiting().get(pid)

    async def close(self) -> None:
        """Take a last sample, which may come at any moment of a second."""
        async with self._turn:
            if self._task is not None:
                self._task.cancel()
            await self._sample(final=True)
            if self._telemetry is not None:
                self._telemetry.close()

    async def _sample(self, *, final: bool = False) -> None:
        """Drain the rings, read the sensors, write one line, and stream it with how far each rank is.

        `final`: an attempt or the job ends, so this line must not be thinned out on its way.
        """
        pids = self.workers.pids() if self.workers is not None else {}
        # In a thread, because the recording may lie on a disk that does not answer, and supervision has to go on.
        line = await asyncio.to_thread(self._read, pids)
        progress = self.rings.progress() if self.rings is not None else {}
        self.on_lines("telemetry", [{**line, "progress": progress, "final": final}])
        self._send_tails()
        self._say_joined()
        for sensor, reason in self.sampler.missing.items():
            self._say_missing(sensor, reason)
        if self.workers is not None and self.rings is not None:
            leaving = {pid: said.since_ns for pid, said in self.rings.exiting().items()}
            self.workers.enforce_exit_deadline(leaving, time.time_ns())

    def _read(self, pids: dict[int, int]) -> dict[str, Any]:
        assert self._telemetry is not None
        rings = self.rings
        if rings is not None:
            rings.drain()
        line = {"t_ns": time.time_ns(), **self.sampler.sample(pids)}
        self._telemetry.append(line)
        return line

    def _send_tails(self) -> None:
        attempt = self.rings.attempt if self.rings is not None else 0
        lines = [
            {"t_ns": time.time_ns(), "attempt": attempt, "rank": rank, "stream": stream, "text": text}
            for rank, stream, text in (self.tails.take() if self.tails is not None else ())
        ]
        if lines:
            self.on_lines("logs", lines)

    def _say_missing(self, sensor: str, reason: str) -> None:
        if sensor not in self._said_missing:
            self._said_missing.add(sensor)
            self.on_event("sensor_missing", sensor=sensor, reason=reason)

    def _say_joined(self) -> None:
        for joined in self.rings.newly_joined() if self.rings is not None else ():
            self.on_event("rank_joined", **joined)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.interval_seconds)
            try:
                async with self._turn:
                    await self._sample()
            except Exception as error:
                # One sample is lost; without the ones after it no exit deadline would be kept any more.
                self._say_missing("monitor", f"{type(error).__name__}: {error}")
