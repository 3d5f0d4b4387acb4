"""The agent's side of the process that saves the ranks' state: starts it, asks it, and says what came of it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

import msgspec

from paceline.parts.resume.agent.saver_process import Request, SaverAnswer, SaverOrder

# The name of the module comes on stdin: a user who kills agents by a pattern must not find the saver by its command line.
_RUN_MODULE = "import runpy, sys; runpy.run_module(sys.stdin.readline().strip(), run_name='__main__')"
_COMMAND = (sys.executable, "-P", "-c", _RUN_MODULE, "state-saver")
_MODULE = b"paceline.parts.resume.agent.saver_process"


class StateSaver:
    """The process that saves the state of this host's ranks."""

    def __init__(self, order: SaverOrder, environ: Mapping[str, str], say: Callable[[SaverAnswer], None]) -> None:
        """`environ`: of the process. `say`: called with the first save, and with one that fails where the one before did not.

        Raises:  OSError: the process cannot be started
        """
        self.newest = SaverAnswer()
        self._say = say
        self._is_failing = False
        # Whether another run has been seen to save to the same place.
        self._is_beside = False
        self._waiting: asyncio.Future[SaverAnswer] | None = None
        self._asked: Request | None = None
        self._has_left = False
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            pass_fds=order.descriptors,
            # What a terminal sends to the agent's processes must not come here: the agent decides what follows.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        loop = asyncio.get_running_loop()
        self._reading = threading.Thread(target=self._read, args=(self._process.stdout, loop), daemon=True)
        self._reading.start()
        self._write(_MODULE)
        self._write(msgspec.json.encode(order))

    @property
    def pid(self) -> int:
        """Process id of the saver."""
        return self._process.pid

    @property
    def is_failing(self) -> bool:
        """Whether the last save has failed, or does not move."""
        return self._is_failing

    @property
    def has_left(self) -> bool:
        """Whether the process has ended by itself, or was killed."""
        return self._has_left

    async def ask(self, request: Request, timeout_seconds: float) -> SaverAnswer:
        """Have the newest step saved now ("save"), or the saved steps removed because the job has ended well ("end")."""
        lost = msgspec.structs.replace(
            self.newest, to=request, failed="the process that saves the state ended by itself"
        )
        if self._has_left:
            return lost
        self._asked, self._waiting = request, asyncio.get_running_loop().create_future()
        self._write(msgspec.json.encode(request))
        try:
            return await asyncio.wait_for(self._waiting, timeout_seconds)
        except TimeoutError:
            return msgspec.structs.replace(lost, failed=f"it took more than {timeout_seconds:.0f} s")

    def hasten(self) -> None:
        """Have the newest step saved now, without waiting for it."""
        self._write(msgspec.json.encode("now"))

    def close(self) -> None:
        """End the process. What it is saving now is left without a manifest."""
        self._is_failing = True
        self._process.kill()
        self._process.wait()
        self._reading.join()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        # A saver that was killed saves nothing any more. The training goes on.
        with suppress(OSError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _read(self, stream: IO[bytes], loop: asyncio.AbstractEventLoop) -> None:
        try:
            with stream:
                for line in stream:
                    loop.call_soon_threadsafe(self._take, msgspec.json.decode(line, type=SaverAnswer))
            loop.call_soon_threadsafe(self._lost)
        except RuntimeError:
            pass  # the loop is closed: no caller waits for the answer

    def _lost(self) -> None:
        self._has_left = True
        self._take(
            msgspec.structs.replace(
                self.newest, to=self._asked or "", failed="the process that saves the state ended by itself"
            )
        )

    def _take(self, answer: SaverAnswer) -> None:
        if answer.to != "end":
            is_first = self.newest.step is None and answer.step is not None
            is_news = is_first or (answer.other_run and not self._is_beside)
            self._is_beside |= bool(answer.other_run)
            self.newest = msgspec.structs.replace(answer, to="", failed="")
            if bool(answer.failed) > self._is_failing or (is_news and not answer.failed):
                self._say(answer)
            self._is_failing = bool(answer.failed)
        if answer.to == self._asked and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)
