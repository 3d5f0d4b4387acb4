"""The agent's side of the process that holds the ranks' store, on the host of rank 0. See worker/store_holder.py."""

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from paceline.launch.agent.host_attempt import HostIdentity

PROGRAM = Path(__file__).resolve().parents[2] / "worker" / "store_holder.py"
# A file in the directory of sockets: rank 0 then serves the store.
NOT_HELD = "store.not_held"
_MOST_BYTES = 4096
_LOOK_SECONDS = 20.0
_LOOK = "import importlib.util, os; print(os.path.dirname(os.path.dirname(importlib.util.find_spec('torch').origin)))"


def torch_directory(python: str) -> str | None:
    """The directory in which this interpreter finds torch; None: it finds none, so nobody needs a store. torch is not imported."""
    if python == sys.executable:
        spec = importlib.util.find_spec("torch")
        return None if spec is None or spec.origin is None else str(Path(spec.origin).parents[1])
    try:
        found = subprocess.run([python, "-I", "-c", _LOOK], capture_output=True, text=True, timeout=_LOOK_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.rstrip("\n") if found.returncode == 0 else None


@dataclass(slots=True)
class StoreHolder:
    """A running holder."""

    process: subprocess.Popen[bytes]
    """The process."""
    connection: socket.socket
    """The socket on which it answers."""
    failed: Callable[[str], None]
    """Called with the reason when a store cannot be held."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def hold(self, port: int) -> None:
        """Let it serve the store of a new attempt. It answers later: the ranks wait for the store as for one of rank 0."""
        try:
            self.connection.send(json.dumps({"port": port}).encode())
        except OSError:
            self._lose()

    def _answered(self) -> None:
        try:
            said = self.connection.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._lose()
        elif reason := json.loads(said).get("failed"):
            self.failed(reason)

    def _lose(self) -> None:
        asyncio.get_running_loop().remove_reader(self.connection)
        self.failed("the process that holds it has ended")

    def close(self) -> None:
        """End it, and the store with it."""
        asyncio.get_running_loop().remove_reader(self.connection)
        self.connection.close()
        self.process.kill()
        self.process.wait()


def start_store_holder(
    python: str, directory: str, environment: Mapping[str, str], failed: Callable[[str], None]
) -> StoreHolder:
    """Start a holder. `directory`: in which torch is.

    Raises:  OSError: the interpreter cannot be executed
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        try:
            process = subprocess.Popen(
                # Nothing of the user's is imported there.
                [python, "-I", "-u", str(PROGRAM), str(theirs.fileno()), directory],
                env=dict(environment),
                cwd=os.sep,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
    holder = StoreHolder(process, ours, failed)
    asyncio.get_running_loop().add_reader(ours, holder._answered)
    return holder


@dataclass(slots=True)
class HostStore:
    """The ranks' store on the host of rank 0: one process holds those of all attempts, or rank 0 serves it."""

    identity: HostIdentity
    """Names and settings of this host in the run."""
    directory: str | None
    """The directory in which the ranks' Python finds torch; None: no attempt asks for a store."""
    lasting: set[int]
    """Process ids that are no leftovers of an attempt: that of the process is added."""
    event: Callable[..., None]
    """Records one event of this host."""
    _holder: StoreHolder | None = field(default=None, init=False)
    _not_held: Path = field(default=Path(NOT_HELD), init=False)

    def hold(self, port: int, sockets: Path) -> None:
        """Let the process serve the store of a new attempt. Where it cannot, a file in `sockets` tells rank 0 to serve it."""
        assert self.directory is not None
        self._not_held = sockets / NOT_HELD
        self._not_held.unlink(missing_ok=True)
        if self._holder is None:
            try:
                self._holder = start_store_holder(
                    self.identity.python, self.directory, self.identity.marked_environ, self._failed
                )
            except OSError as error:
                self._failed(str(error))
                return
            self.lasting.add(self._holder.pid)
        self._holder.hold(port)

    def _failed(self, reason: str) -> None:
        text = f"rank 0 serves the store of the ranks; it cannot be held on {self.identity.name}: {reason}"
        self.event("notice", text=text)
        with suppress(OSError):
            self._not_held.touch()

    def close(self) -> None:
        """End the process, and the store with it."""
        if self._holder is not None:
            self._holder.close()
            self.lasting.discard(self._holder.pid)
            self._holder = None
