"""The connection to one host: a first ssh session that inspects the host and keeps the connection open, and further sessions through it.

Every ssh process has its own session on this machine, so that Ctrl-C at a terminal reaches this program and not ssh. ssh gets all its
input on stdin: when this process dies, the input ends, and so do the programs that ssh has started.
"""

import asyncio
import json
import shlex
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paceline.launch.engines.ssh import remote
from paceline.launch.engines.ssh.options import Settings, ssh_argv

LEAST_PYTHON = (3, 11)
TOO_OLD = "paceline> too old: "
_CLOSING_SECONDS, _BEAT_SECONDS = 3.0, 5.0
_ANSWER_BYTES = 1 << 20
_BOOT = (
    f"import sys; sys.version_info < {LEAST_PYTHON} and sys.exit('{TOO_OLD}%d.%d' % sys.version_info[:2]); "
    "exec(compile(sys.stdin.buffer.read(int(sys.argv[1])), 'far_side', 'exec'))"
)


class ConnectionLost(Exception):
    """The session ended or could not be opened. `ssh_said`: ssh's own output; `remote`: the host's output; `code`: ssh's exit code."""

    def __init__(self, ssh_said: str, remote: str, code: int | None) -> None:
        super().__init__(ssh_said or remote)
        self.ssh_said, self.remote, self.code = ssh_said, remote, code


class SshConnection:
    """The connection to one host. `folder`: a private directory with a short path, for the control socket and ssh's log."""

    def __init__(self, host: str, settings: Settings, folder: Path, number: int) -> None:
        self.host = host
        self.found: dict[str, Any] = {}
        self._settings = settings
        self._socket = folder / str(number)
        self._sessions = 0
        self._master: Process | None = None
        self._remote = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._sending = False

    async def open(self) -> None:
        """Start ssh and send it the remote program. Whether the connection works is known after the first `ask`.

        Raises:  OSError: there is no such ssh program
        """
        program = Path(remote.__file__).read_bytes()
        command = _far_command(self._settings.python, len(program))
        self._master = await self._ssh("yes", command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=_ANSWER_BYTES)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read_errors(self._master)), loop.create_task(self._beat())]
        self._write(program)

    async def ask(self, do: str, question: Mapping[str, Any], content: Path | None = None) -> dict[str, Any]:
        """Send a question to the remote program and return its answer. `content`: a file that is sent after the question.

        Raises:  ConnectionLost: there is no answer
        """
        size = {"size": content.stat().st_size} if content is not None else {}
        self._write(json.dumps({"do": do, **question, **size}).encode() + b"\n")
        if content is not None:
            await self._send(content)
        return await self._answer()

    async def start(self, command: str, **options: Any) -> Process:
        """Start a command on the host through the open connection."""
        return await self._ssh("no", command, **options)

    @property
    def alive(self) -> bool:
        """Whether the connection is open, as far as ssh knows."""
        return self._master is not None and self._master.returncode is None

    async def ended(self) -> None:
        """Wait until the connection is closed."""
        assert self._master is not None
        await self._master.wait()

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

    async def close(self) -> None:
        """End the session. The remote program ends with its input. A process that does not end is killed."""
        if self._master is None:
            return
        assert self._master.stdin is not None
        self._master.stdin.close()
        try:
            await asyncio.wait_for(self._master.wait(), _CLOSING_SECONDS)
        except TimeoutError:
            kill(self._master)
            await self._master.wait()
        for task in self._tasks:
            task.cancel()

    async def _ssh(self, master: str, command: str, **options: Any) -> Process:
        number, self._sessions = self._sessions, self._sessions + 1
        own = ("-o", f"ControlMaster={master}", "-o", f"ControlPath={self._socket}", "-E", str(self._log(number)))
        argv = (*ssh_argv(self._settings, self.host, own), command)
        return await asyncio.create_subprocess_exec(*argv, start_new_session=True, **options)

    def _log(self, number: int) -> Path:
        return self._socket.with_name(f"{self._socket.name}-{number}.log")

    def _write(self, data: bytes) -> None:
        assert self._master is not None and self._master.stdin is not None
        self._master.stdin.write(data)

    async def _beat(self) -> None:
        """Send signs of life to the remote program, which may not notice otherwise that the connection is cut."""
        while self.alive:
            await asyncio.sleep(_BEAT_SECONDS)
            if not self._sending:
                self._write(b'{"do": "stay"}\n')

    async def _send(self, content: Path) -> None:
        assert self._master is not None and self._master.stdin is not None
        self._sending = True
        with content.open("rb") as file:
            while piece := file.read(1 << 20):
                self._master.stdin.write(piece)
                # A lost connection is reported where the answer is read.
                with suppress(ConnectionError):
                    await self._master.stdin.drain()
        self._sending = False

    async def _answer(self) -> dict[str, Any]:
        assert self._master is not None and self._master.stdout is not None
        while line := await self._master.stdout.readline():
            if line.startswith(remote.MARK):
                answer: dict[str, Any] = json.loads(line[len(remote.MARK) :])
                return answer
        code = await self._master.wait()
        await self._tasks[0]
        raise ConnectionLost(self.ssh_said(), self._remote.decode(errors="replace").strip(), code)

    async def _read_errors(self, process: Process) -> None:
        assert process.stderr is not None
        while piece := await process.stderr.read(1 << 14):
            self._remote = (self._remote + piece)[-4096:]


def kill(process: Process) -> None:
    """Kill a process that may have ended already."""
    with suppress(ProcessLookupError):
        process.kill()


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


def _far_command(python: str | None, size: int) -> str:
    """One word for the login shell: sh finds Python and starts the program that arrives on stdin."""
    boot = f"-c {shlex.quote(_BOOT)} {size}"
    if python is not None:
        return f"exec {shlex.quote(python)} {boot}"
    own = shlex.quote(sys.executable)
    return f"exec sh -c {shlex.quote(f'[ -x {own} ] && exec {own} {boot}; exec python3 {boot}')}"
