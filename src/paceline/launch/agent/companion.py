"""Runs a process beside the ranks of a host, which one of the parts asks for."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.launch.agent.fork_server import OF_A_RANK
from paceline.launch.agent.process_end import ProcessEnd
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


def start_companion(
    asked: Companion, environment: Mapping[str, str], directory: str | None, log: Path
) -> RunningCompanion:
    """Start a companion. `environment`: that of a rank; `log`: the file for its output.

    Raises:  OSError: its program cannot be executed, or the file cannot be written
    """
    of_host = {name: value for name, value in environment.items() if name not in OF_A_RANK}
    with os.fdopen(write_plain(log, os.O_WRONLY | os.O_APPEND), "ab") as out:
        process = subprocess.Popen(
            list(asked.argv),
            env={**of_host, **_OWN, **asked.environment},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return RunningCompanion(asked, process, log)
