"""The connection to one host: a first ssh session that inspects the host and keeps the connection open, and further sessions through it.

Every ssh process has its own session on this machine, so that Ctrl-C at a terminal reaches this program and not ssh. ssh gets all its
input on stdin: when this process dies, the input ends, and so do the programs that ssh has started.
"""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paceline.parts.engines.remote_program import RemoteProgram, boot_command
from paceline.parts.engines.ssh.options import Settings, ssh_argv


class SshConnection(RemoteProgram):
    """The connection to one host. `folder`: a private directory with a short path, for the control socket and ssh's log."""

    def __init__(self, host: str, settings: Settings, folder: Path, number: int) -> None:
        super().__init__(host)
        self.found: dict[str, Any] = {}
        self._settings = settings
        self._socket = folder / str(number)
        self._sessions = 0

    async def open(self) -> None:
        """Start ssh and send it the remote program. Whether the connection works is known after the first `ask`.

        Raises:  OSError: there is no such ssh program
        """
        await self.begin(*self._argv("yes", boot_command(self._settings.python)))

    async def start(self, command: str, **options: Any) -> Process:
        """Start a command on the host through the open connection."""
        return await asyncio.create_subprocess_exec(*self._argv("no", command), start_new_session=True, **options)

    def last_words(self) -> str:
        """The last message of ssh about a connection that ended."""
        said = [
            line
            for line in (*self._remote.decode(errors="replace").splitlines(), *self.ssh_said().splitlines())
            if line.strip()
        ]
        said = [line.strip() for line in said if "Shared connection" not in line]
        return said[-1] if said else "the connection ended without a word"

    def ssh_said(self) -> str:
        """The last lines of ssh's output for this connection."""
        with suppress(OSError):
            lines = self._log(0).read_text(errors="replace").splitlines()
            return "\n".join(
                line.strip() for line in lines if line.strip() and not line.startswith("Warning: Permanently")
            )[-600:]
        return ""

    def _argv(self, master: str, command: str) -> tuple[str, ...]:
        number, self._sessions = self._sessions, self._sessions + 1
        own = ("-o", f"ControlMaster={master}", "-o", f"ControlPath={self._socket}", "-E", str(self._log(number)))
        return (*ssh_argv(self._settings, self.host, own), command)

    def _log(self, number: int) -> Path:
        return self._socket.with_name(f"{self._socket.name}-{number}.log")


async def host_of(settings: Settings, host: str) -> str:
    """The host name or address to which ssh itself would connect, from the user's configuration.

    Raises:  OSError: there is no such ssh program
    """
    process = await asyncio.create_subprocess_exec(
        *ssh_argv(settings, host)[:-2], "-G", host, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    said, _ = await process.communicate()
    pairs: Mapping[str, str] = dict(line.split(" ", 1) for line in said.decode().splitlines() if " " in line)
    return pairs.get("hostname", host.rpartition("@")[2])
