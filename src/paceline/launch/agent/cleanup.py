"""Clears up behind the ranks of an attempt: ends the processes that they left, and reads the rest of their output and records."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.launch.agent.attempt_exits import AttemptExits
from paceline.launch.agent.job_processes import JobProcesses
from paceline.launch.agent.output import AttemptOutput, Pump
from paceline.launch.agent.telemetry import HostMonitor, Watched
from paceline.launch.job.messages import LONGEST
from paceline.recording.plain_files import read_plain

LEFTOVER_GRACE_SECONDS = 2.0
DRAIN_SECONDS = 2.0
LATE_SECONDS = 5.0


@dataclass(slots=True)
class Cleanup:
    """What one host does when no rank of an attempt is left. If it fails, that does not decide how the attempt ended."""

    host: str
    """Name of this host."""
    processes: JobProcesses
    """Every process of the job on this host."""
    pump: Pump
    """Copies the ranks' output."""
    monitor: HostMonitor
    """Reads the ranks' records."""
    event: Callable[..., None]
    """Records one event of this host."""
    # Tasks that still read the output of attempts that have ended.
    _late: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def clear(self, exits: AttemptExits) -> None:
        """End what the ranks left, and read all of it. No rank is left."""
        try:
            self.processes.reap_orphans()
            if await asyncio.to_thread(self.processes.here):
                await asyncio.to_thread(self.processes.end, LEFTOVER_GRACE_SECONDS)
            await asyncio.to_thread(self.pump.drain, DRAIN_SECONDS)
            self._say_unwatched(exits)
            await self.monitor.end_attempt()
        except Exception as error:
            # The other hosts wait for this host.
            self._say_failed(exits.attempt.message.attempt, error)

    async def kill(self, exits: AttemptExits) -> int:
        """Kill what the ranks left and report how they ended. The rest is read while the next attempt runs.

        Returns the greatest number of steps that a rank has made.
        """
        watched, output = self.monitor.detach(), self.pump.of_attempt()
        try:
            await self.processes.kill(LEFTOVER_GRACE_SECONDS)
        except OSError as error:
            self._say_failed(exits.attempt.message.attempt, error)
        await exits.report_early()
        late = asyncio.get_running_loop().create_task(self._read_late(exits, watched, output))
        self._late.add(late)
        late.add_done_callback(self._late.discard)
        return 0 if watched is None else watched.step_count()

    async def _read_late(self, exits: AttemptExits, watched: Watched | None, output: AttemptOutput) -> None:
        try:
            await exits.judged()
            await asyncio.to_thread(output.drain, DRAIN_SECONDS)
            self._say_unwatched(exits)
            if watched is not None:
                await self.monitor.end_detached(watched)
        except Exception as error:
            self._say_failed(exits.attempt.message.attempt, error)

    async def finish(self) -> None:
        """Wait up to 5 s until all is read of the attempts whose processes were killed."""
        if self._late:
            await asyncio.wait(self._late, timeout=LATE_SECONDS)

    def _say_unwatched(self, exits: AttemptExits) -> None:
        for process in unwatched_processes(exits.attempt.errors):
            self.event("process_unwatched", attempt=exits.attempt.message.attempt, **process)

    def _say_failed(self, attempt: int, error: Exception) -> None:
        text = f"{self.host} could not clear up after attempt {attempt}: {type(error).__name__}: {error}"
        self.event("notice", text=text)


def unwatched_processes(errors: Path) -> Iterator[dict[str, Any]]:
    """The processes that could not be watched, each with the reason that it left in this directory. The files are removed."""
    for left in errors.glob("*.unwatched"):
        yield {"pid": int(left.stem) if left.stem.isdecimal() else 0, "reason": _said_in(left)}
        left.unlink(missing_ok=True)


def _said_in(file: Path) -> str:
    try:
        return read_plain(file, LONGEST).decode(errors="replace")
    except OSError:
        return ""
