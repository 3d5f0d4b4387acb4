"""The agent's side of the process that holds the ranks' store, on the host of rank 0. See worker/store_holder.py."""

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    holder = StoreHolder(process, ours, failed)
    asyncio.get_running_loop().add_reader(ours, holder._answered)
    return holder
