"""Runs the processes beside the ranks of a host that the parts ask for."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from paceline.launch.agent.fork_server_client import OF_A_RANK
from paceline.launch.agent.process_end import ProcessEnd
from paceline.launch.agent.workers import WorkerSpec
from paceline.part import Companion
from paceline.recording.plain_files import write_plain

_OWN = {"PACELINE_OFF": "all"}
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class RunningCompanion:
    """A companion that was started."""

    asked: Companion
    """What was asked for."""
    process: subprocess.Popen[bytes]
    """The process, which leads a session."""
    log: Path
    """The file with what it prints."""

    async def ended(self) -> str:
        """Wait until it has ended. Returns how, for people, with the last line that it has printed."""
        over = asyncio.Event()
        end = ProcessEnd(self.process.pid, over.set)
        try:
            await over.wait()
        finally:
            end.close()
        code = self.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        lines = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return how + (f": {last}" if last and code > 0 else "")


@dataclass(slots=True)
class Companions:
    """The companions of one host in one attempt. If one is lost, the host has failed: what waits for it may wait for ever."""

    host: str
    """Name of this host."""
    ranks: Callable[[], Collection[int]]
    """The ranks of this host that have not ended."""
    began: Callable[[int], None]
    """Called with the process id of each companion."""
    on_lost: Callable[[str], None]
    """Called with how a companion has ended that was still needed."""
    event: Callable[..., None]
    """Records one event of this host."""
    lost: str = field(default="", init=False)
    """How a companion has ended that was still needed; "": none has."""
    serves_until: str = field(default="", init=False)
    """What a companion serves when the ranks of its host have ended, and until when; "": none does."""
    _are_released: bool = field(default=False, init=False)
    # The other hosts need no companion of this host, or no longer.
    _unneeded: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self._unneeded.set()

    @property
    def serve_others(self) -> bool:
        """Other hosts still need a companion of this host."""
        return not self._unneeded.is_set()

    def start(self, asked: Companion, spec: WorkerSpec, log: Path) -> RunningCompanion:
        """Start a companion. `spec`: of the first rank; `log`: the file for its output.

        Raises:  OSError: its program cannot be executed, or the file cannot be written
        """
        of_host = {name: value for name, value in spec.environment.items() if name not in OF_A_RANK}
        with os.fdopen(write_plain(log, os.O_WRONLY | os.O_APPEND), "ab") as out:
            process = subprocess.Popen(
                list(asked.argv),
                env={**of_host, **_OWN, **asked.environment},
                cwd=spec.working_directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.began(process.pid)
        if asked.serves_until:
            self.serves_until = f"its {asked.name} serves until {asked.serves_until}"
            self._unneeded.clear()
        return RunningCompanion(asked, process, log)

    async def watch(self, companion: RunningCompanion) -> None:
        """Wait until it has ended, and say so if it was still needed."""
        how = await companion.ended()
        if self._are_released or not (self.ranks() or self.serve_others):
            return
        self.lost = f"the {companion.asked.name} of {self.host} {how}"
        self.event("notice", text=f"{self.lost}; its output: {companion.log}")
        self._unneeded.set()
        self.on_lost(self.lost)

    async def unneeded(self) -> None:
        """Wait until no other host needs a companion of this host."""
        await self._unneeded.wait()

    def release(self) -> None:
        """The attempt is ended: no companion is needed any more."""
        self._are_released = True
        self._unneeded.set()
