"""Copies a host's part of the recording to this machine while it grows."""

import asyncio
import json
import shlex
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path

from paceline.parts.engines.remote_program import kill
from paceline.parts.engines.ssh.connection import SshConnection
from paceline.recording import mirror
from paceline.terminal_text import write_line

INTERVAL_SECONDS = 1.0
_LAST_SECONDS = 30.0
# Printed before the first piece, because a login script may have printed text before.
_BEGIN = "paceline> recording"
_LENGTH_BYTES = 8


class Copy:
    """Copies one directory of one host to `run_dir` through the host's connection."""

    def __init__(self, connection: SshConnection, directory: str, run_dir: Path) -> None:
        self._connection = connection
        self._directory = directory
        self._place = run_dir
        self._known: mirror.Known = {}
        self._far: Process | None = None
        self._one_at_a_time = asyncio.Lock()
        self._over = False
        self._said: set[str] = set()

    async def follow(self) -> None:
        """Copy the changes every second, until the connection ends."""
        while self._connection.alive:
            if not await self._round():
                return
            await asyncio.sleep(INTERVAL_SECONDS)

    async def finish(self, following: "asyncio.Future[None]") -> None:
        """Stop following, and copy the last changes."""
        # A started round may finish, unless the host is silent. Otherwise half of it would be requested again.
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS), self._one_at_a_time:
                pass
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await self.once()

    async def once(self) -> None:
        """Copy all changes, if the host is still reachable."""
        if not self._connection.alive:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._until_nothing_new(), _LAST_SECONDS)
        if self._far is not None:
            assert self._far.stdin is not None
            self._far.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._far.wait(), 1.0)
            if self._far.returncode is None:
                kill(self._far)
                await self._far.wait()

    async def _until_nothing_new(self) -> None:
        before: mirror.Known | None = None
        while before != self._known:
            before = self._known
            if not await self._round():
                return

    async def _round(self) -> bool:
        """Ask once and apply the answer. Returns False if there is no answer any more, or if the answer cannot be stored."""
        async with self._one_at_a_time:
            if self._over:
                return False
            # After an interrupted round, half an answer is in the stream, so no later answer can be read.
            self._over = True
            try:
                piece = await self._answer()
                self._known = await asyncio.to_thread(_applied, self._place, piece, self._known)
            except (asyncio.IncompleteReadError, ConnectionError):
                return False
            except ValueError as error:
                self._say_once(f"the recording of {self._connection.host} is not brought here any more: {error}")
                return False
            except OSError as error:
                # The disk may have room again later.
                self._say_once(f"the recording of {self._connection.host} cannot be brought to {self._place}: {error}")
            self._over = False
            return True

    async def _answer(self) -> bytes:
        """The changes on the host.

        Raises:  ConnectionError, IncompleteReadError: the host does not answer; ValueError: the answer is not in the right form
        """
        if self._far is None:
            try:
                self._far = await self._start()
            except OSError as error:
                raise ConnectionError(str(error)) from error
        assert self._far.stdin is not None and self._far.stdout is not None
        self._far.stdin.write(json.dumps(self._known).encode() + b"\n")
        length = int.from_bytes(await self._far.stdout.readexactly(_LENGTH_BYTES), "big")
        if length > mirror.MOST_PIECE_BYTES:
            raise ValueError(f"it announces {length} bytes")
        return await self._far.stdout.readexactly(length)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            write_line(f"paceline  {text}")

    async def _start(self) -> Process:
        python = shlex.quote(self._connection.found["executable"])
        command = f"echo '{_BEGIN}' && exec {python} -P -m paceline.recording.mirror {shlex.quote(self._directory)}"
        far = await self._connection.start(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        assert far.stdout is not None
        try:
            while line := await far.stdout.readline():
                if line.strip() == _BEGIN.encode():
                    break
        except ValueError:
            # No line of a login script is this long.
            kill(far)
            await far.wait()
            raise
        return far


def _applied(run_dir: Path, piece: bytes, known: mirror.Known) -> mirror.Known:
    mirror.apply(run_dir, piece)
    return mirror.known_after(piece, known)
