"""The agent's side of the transfer process: it sends orders, reads answers, and can abort at once."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from paceline.errors import UsageError, four_parts
from paceline.facts import Channel
from paceline.storage.urls import shown

CHECK_SECONDS = 90.0
_COMMAND = (sys.executable, "-P", "-m", "paceline.launch.agent.transfer_process")


@dataclass(slots=True)
class Transfers:
    """The process that transfers files, one per host. It starts with the first order."""

    environ: Mapping[str, str]
    """Environment variables of the transfer process."""
    progress: Callable[[dict[str, Any]], None]
    """Called with the progress of the current order."""
    claim: Callable[[dict[str, Any]], None]
    """Called with the checkpoints that the process wants to send. `claimed` gives the answer."""
    finding: Callable[[dict[str, Any]], None]
    """Called, in four parts, with what could not be sent at the moment."""
    _process: subprocess.Popen[bytes] | None = None
    _waiting: asyncio.Future[dict[str, Any]] | None = None
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _over: str = ""

    async def ask(self, do: str, /, **order: Any) -> dict[str, Any]:
        """Send one order and wait for its end.

        Raises:  UsageError E01, E51 to E53, U06, U22: the order failed or was aborted
        """
        async with self._one:
            if self._over:
                raise _ended(self._over)
            if self._process is None:
                self._start()
            self._waiting = asyncio.get_running_loop().create_future()
            self._write({"do": do, **order})
            answer = await self._waiting
        if "error" in answer:
            error = answer["error"]
            raise UsageError(error["code"], error["what"], saw=error["saw"], next=error["next"])
        done: dict[str, Any] = answer["done"]
        return done

    def claimed(self, same: Sequence[str], taken: Mapping[str, str]) -> None:
        """Answer the process's claim: which names are stored already, and which belong to other hosts."""
        self._write({"same": list(same), "taken": dict(taken)})

    def give_up(self) -> None:
        """End the process at once. An order that it was carrying out fails."""
        self._over = self._over or "it was given up"
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process, which has nothing left to do, and wait for it."""
        self.give_up()
        if self._process is not None:
            self._process.wait()
            if self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(self.environ),
            # Ctrl-C at the terminal must reach the agent only. The agent decides what follows.
            process_group=0,
        )
        assert self._process.stdout is not None
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(self._process.stdout, loop), daemon=True).start()

    def _read(self, stream: IO[bytes], loop: asyncio.AbstractEventLoop) -> None:
        try:
            for line in stream:
                loop.call_soon_threadsafe(self._take, json.loads(line))
            loop.call_soon_threadsafe(self._lost)
        except RuntimeError:
            pass  # the loop is closed: no caller waits for the answer

    def _lost(self) -> None:
        self._over = self._over or "the process that moves files ended by itself"
        self._take({"error": four_parts(_ended(self._over))})

    def _take(self, answer: dict[str, Any]) -> None:
        if "progress" in answer:
            self.progress(answer["progress"])
        elif "claim" in answer:
            self.claim(answer["claim"])
        elif "finding" in answer:
            self.finding(answer["finding"])
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the process has ended, and the reading thread reports it


def check_urls(
    channels: Sequence[Channel], output_url: str | None, checkpoint_url: str | None, environ: Mapping[str, str]
) -> None:
    """Check that every URL of a job can be reached, before any process is started.

    Raises:  UsageError E01 (no plug-in), E51 (not there), E52 (denied), E53 (no answer), U06 (data type)
    """
    sources = [
        {"url": channel.source, "data_type": channel.data_type, "doing": f"channel {channel.name!r} cannot be read"}
        for channel in channels
        if "://" in channel.source
    ]
    targets = [
        {"url": url, "doing": doing}
        for url, doing in (
            (output_url, "what the job leaves cannot be sent"),
            (checkpoint_url, "checkpoints cannot be kept"),
        )
        if url is not None
    ]
    if not sources and not targets:
        return
    order = json.dumps({"do": "check", "sources": sources, "targets": targets}) + "\n"
    with subprocess.Popen(
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(environ)
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        too_long = threading.Timer(CHECK_SECONDS, process.kill)
        too_long.start()
        try:
            process.stdin.write(order.encode())
            process.stdin.flush()
            line = process.stdout.readline()
        finally:
            too_long.cancel()
            process.kill()
    names = ", ".join(shown(entry["url"]) for entry in (*sources, *targets))
    answer = (
        json.loads(line) if line else {"error": four_parts(_ended(f"no answer in {CHECK_SECONDS:.0f} s about {names}"))}
    )
    if "error" in answer:
        error = answer["error"]
        raise UsageError(error["code"], error["what"], saw=error["saw"], next=error["next"])


def _ended(saw: str) -> UsageError:
    next_step = "start the job again: only what is missing is moved"
    return UsageError("E53", "files could not be moved", saw=saw, next=next_step)
