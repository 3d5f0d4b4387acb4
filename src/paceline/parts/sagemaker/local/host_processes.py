"""All hosts of one job while they run: starts them together, reads their lines, ends them together."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from paceline.parts.sagemaker.local.host import HostSpec, program

_LAST_LINES_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of one host's program. `code` is as in a shell; `at` is in monotonic seconds."""

    host: str
    code: int
    at: float


class HostProcesses:
    """The hosts of a job. `tell(host, line)` is called for each line that they print, from one thread per host."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []
        self._lifeline: int | None = None
        self.exits: dict[str, Exit] = {}

    def start(
        self, specs: Sequence[HostSpec], environments: Mapping[str, Mapping[str, str]], lifeline: tuple[int, int]
    ) -> None:
        """Start every host. `lifeline`: the two ends of a pipe. The first end is in every spec, and both are closed in the end.

        Raises:  OSError: this machine cannot start another process
        """
        reading, self._lifeline = lifeline
        try:
            for spec in specs:
                process = subprocess.Popen(
                    program(spec),
                    env=dict(environments[spec.name]),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[reading],
                    start_new_session=True,
                )
                self._processes[spec.name] = process
                assert process.stdout is not None
                reader = threading.Thread(target=self._read, args=(spec.name, process.stdout), daemon=True)
                reader.start()
                self._readers.append(reader)
        finally:
            os.close(reading)

    def look(self) -> bool:
        """Note which hosts have ended. Returns whether all have ended."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None and name not in self.exits:
                self.exits[name] = Exit(host=name, code=code if code >= 0 else 128 - code, at=time.monotonic())
        return len(self.exits) == len(self._processes)

    def first_failure(self) -> Exit | None:
        """The host that failed first; None if no host has failed."""
        return min((one for one in self.exits.values() if one.code != 0), key=lambda one: one.at, default=None)

    def terminate(self) -> None:
        """SIGTERM to every host that still runs. The host forwards the signal."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kill every host that still runs, and read the last lines."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        for process in self._processes.values():
            process.wait()
        self.look()
        for reader in self._readers:
            # A process that held the pipe ended with its host, unless the host itself was killed.
            reader.join(_LAST_LINES_SECONDS)

    def _read(self, host: str, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._tell(host, line.decode(errors="replace").rstrip("\r\n"))
