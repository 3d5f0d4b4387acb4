"""The remote program in a process that an engine has started on a host, and the questions that it answers on stdin and stdout.

The process may be ssh, srun or Python itself. It gets all its input on stdin: when this process dies, the input ends, and so does the
remote program.
"""

import asyncio
import json
import shlex
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paceline.parts.engines.ssh import remote

LEAST_PYTHON = (3, 11)
TOO_OLD = "paceline> too old: "
_CLOSING_SECONDS, _BEAT_SECONDS = 3.0, 5.0
_ANSWER_BYTES = 1 << 20
BOOT = (
    f"import sys; sys.version_info < {LEAST_PYTHON} and sys.exit('{TOO_OLD}%d.%d' % sys.version_info[:2]); "
    "exec(compile(sys.stdin.buffer.read(int(sys.argv[1])), 'far_side', 'exec'))"
)


class ConnectionLost(Exception):
    """The session ended or could not be opened.

    `ssh_said`: what the starting program wrote to a log of its own; `remote`: what arrived on stderr; `code`: its exit code.
    """

    def __init__(self, ssh_said: str, remote: str, code: int | None) -> None:
        super().__init__(ssh_said or remote)
        self.ssh_said, self.remote, self.code = ssh_said, remote, code


def source() -> bytes:
    """The text of the remote program, which a host gets as the first bytes of its input."""
    return Path(remote.__file__).read_bytes()


def boot_command(python: str | None) -> str:
    """The command of a shell that starts the program which arrives on stdin. `python`: None is the path of ours, else python3."""
    boot = f"-c {shlex.quote(BOOT)} {len(source())}"
    if python is not None:
        return f"exec {shlex.quote(python)} {boot}"
    own = shlex.quote(sys.executable)
    return f"exec sh -c {shlex.quote(f'[ -x {own} ] && exec {own} {boot}; exec python3 {boot}')}"


class RemoteProgram:
    """The remote program on one host, and the process here through which it is reached."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._process: Process | None = None
        self._remote = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._sending = False

    async def begin(self, *argv: str, **options: Any) -> None:
        """Start the process and send it the program. Whether the host can be reached is known after the first `ask`.

        Raises:  OSError: there is no such program as argv[0]
        """
        self._process = await asyncio.create_subprocess_exec(
            *argv, start_new_session=True, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=_ANSWER_BYTES, **options
        )
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read_errors(self._process)), loop.create_task(self._beat())]
        self._write(source())

    async def ask(self, do: str, question: Mapping[str, Any], content: Path | None = None) -> dict[str, Any]:
        """Send a question to the remote program and return its answer. `content`: a file that is sent after the question.

        Raises:  ConnectionLost: there is no answer
        """
        size = {"size": content.stat().st_size} if content is not None else {}
        self._write(json.dumps({"do": do, **question, **size}).encode() + b"\n")
        if content is not None:
            await self._send(content)
        return await self._answer()

    @property
    def alive(self) -> bool:
        """Whether the process still runs here."""
        return self._process is not None and self._process.returncode is None

    async def ended(self) -> None:
        """Wait until the process has ended."""
        assert self._process is not None
        await self._process.wait()

    def ssh_said(self) -> str:
        """What the starting program wrote to a log of its own; empty: it has none."""
        return ""

    async def close(self) -> None:
        """End the session. The remote program ends with its input. A process that does not end is killed."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _CLOSING_SECONDS)
        except TimeoutError:
            kill(self._process)
            await self._process.wait()
        for task in self._tasks:
            task.cancel()

    def _write(self, data: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(data)

    async def _beat(self) -> None:
        """Send signs of life to the remote program, which may not notice otherwise that the connection is cut."""
        while self.alive:
            await asyncio.sleep(_BEAT_SECONDS)
            if not self._sending:
                self._write(b'{"do": "stay"}\n')

    async def _send(self, content: Path) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._sending = True
        with content.open("rb") as file:
            while piece := file.read(1 << 20):
                self._process.stdin.write(piece)
                # A lost connection is reported where the answer is read.
                with suppress(ConnectionError):
                    await self._process.stdin.drain()
        self._sending = False

    async def _answer(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.startswith(remote.MARK):
                answer: dict[str, Any] = json.loads(line[len(remote.MARK) :])
                return answer
        code = await self._process.wait()
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
