"""The actor that runs one host's agent. Ray sends it to the node by value, so that it can report there that paceline is missing.

The agent is a separate process in its own session. The pipe to its stdin is the lifeline: if the actor's process ends for any reason, the
agent ends its ranks. Ray kills this process's children with it, and then the agent's guardian ends the ranks.
"""

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

PACKAGES = ("paceline", "torch")
# The limit of output that the keeper has not fetched. Older output is dropped, with a note. The recording has all output.
_MOST_OUTPUT = 4 << 20
_LAST_WORDS = 4 << 10
_ANSWER_SECONDS = 1.0
_CHUNK = 1 << 16
# Variables that Ray sets for its worker processes.
_OF_RAY = ("RAY_", "PYTHONBREAKPOINT", "LD_PRELOAD")


class AgentActor:
    """One host of the job. Each method runs in its own thread and answers within about a second."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._mark = uuid.uuid4().hex
        self._lifeline = -1
        self._agent: subprocess.Popen[bytes] | None = None
        self._streams: dict[str, Output] = {}

    def arrive(self, code: bytes | None) -> dict[str, Any]:
        """Unpack the code and report the node's versions. Without paceline the code is not unpacked."""
        import ray

        versions = installed()
        facts: dict[str, Any] = {"address": ray.util.get_node_ip_address(), "versions": versions}
        if versions["paceline"] is None:
            return facts
        from paceline.launch.ports import free_store_port

        self._lay(code)
        return facts | {"port": free_store_port()}

    def start(self, job: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Start the agent. The environment may have secrets and is written to its stdin only."""
        assert self._root is not None
        self._agent = subprocess.Popen(
            [sys.executable, "-P", "-m", "paceline.launch.programs.engine_host"],
            cwd=self._root / "code",
            env={**own_environment(os.environ, Path("/proc/self/environ").read_bytes()), "PACELINE_MARK": self._mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._agent.stdin is not None
        for name in ("stdout", "stderr"):
            self._streams[name] = Output(getattr(self._agent, name))
        told = {"environment": dict(environment), "job": {**job, "run_dir": str(self._root / "runs")}}
        self._agent.stdin.write(json.dumps(told).encode() + b"\n")
        self._agent.stdin.flush()

    def ended(self) -> int | None:
        """The agent's exit code in a shell's form; None: the agent is running."""
        assert self._agent is not None
        try:
            code = self._agent.wait(timeout=_ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def output(self) -> tuple[bytes, bytes] | None:
        """The agent's output to stdout and stderr since the last call; None: no output can follow."""
        out, err = self._streams["stdout"], self._streams["stderr"]
        pieces = out.take(_ANSWER_SECONDS / 4), err.take(0.0)
        return None if not any(pieces) and out.closed and err.closed else pieces

    def last_words(self) -> bytes:
        """The end of the agent's stderr that was not fetched yet."""
        return self._streams["stderr"].take(_ANSWER_SECONDS)[-_LAST_WORDS:] if self._streams else b""

    def changes(self, run_id: str, known: Mapping[str, Any]) -> tuple[bytes, Mapping[str, Any]]:
        """The changes in this host's part of the recording."""
        from paceline.recording.mirror import changes

        assert self._root is not None
        return changes(self._root / "runs" / run_id, known)

    def stop(self, now: bool) -> None:
        """Send SIGTERM to the agent; with `now`, close its lifeline at once."""
        agent = self._agent
        if agent is None or agent.poll() is not None:
            return
        if not now:
            agent.send_signal(signal.SIGTERM)
        elif agent.stdin is not None:
            agent.stdin.close()

    def leave(self) -> None:
        """End all processes that are left and remove the scratch directory."""
        if self._agent is not None:
            self.stop(now=True)
            try:
                self._agent.wait(timeout=5 * _ANSWER_SECONDS)
            except subprocess.TimeoutExpired:
                self._agent.kill()
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    def _lay(self, code: bytes | None) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="paceline-ray-"))
        self._lifeline = sweep_behind(self._root, self._mark)
        directory = self._root / "code"
        if code is None:
            directory.mkdir()
            return
        from paceline.parts.engines.package import unpack

        archive = self._root / "code.tar.gz"
        archive.write_bytes(code)
        unpack(archive, directory)
        archive.unlink()


class Output:
    """One stream of the agent. A thread reads it at once, so that the agent never waits for the keeper."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.closed = False
        self._pieces = bytearray()
        self._dropped = 0
        self._news = threading.Condition()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def take(self, wait_seconds: float) -> bytes:
        """The new output. The call waits until there is some, at most `wait_seconds`."""
        with self._news:
            self._news.wait_for(lambda: self._pieces or self.closed, wait_seconds)
            taken, dropped = bytes(self._pieces), self._dropped
            self._pieces.clear()
            self._dropped = 0
        return (
            taken if not dropped else b"... %d bytes were not shown; the recording has them ...\n%b" % (dropped, taken)
        )

    def _read(self, stream: IO[bytes]) -> None:
        while piece := os.read(stream.fileno(), _CHUNK):
            with self._news:
                self._pieces += piece
                if (excess := len(self._pieces) - _MOST_OUTPUT) > 0:
                    del self._pieces[:excess]
                    self._dropped += excess
                self._news.notify_all()
        with self._news:
            self.closed = True
            self._news.notify_all()


def installed() -> dict[str, str | None]:
    """The versions that must be equal on all hosts of a job; None: not installed."""
    versions: dict[str, str | None] = {"python": ".".join(map(str, sys.version_info[:2]))}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def own_environment(environ: Mapping[str, str], at_start: bytes) -> dict[str, str]:
    """The node's environment without the variables that Ray set for its workers.

    `at_start`: the content of /proc/self/environ, the variables at the start of this process. Ray sets thread counts for its tasks
    later, and a rank is not a task.
    """
    given = at_start.split(b"\0")
    threads = any(entry.startswith(b"OMP_NUM_THREADS=") for entry in given)
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_OF_RAY) and (threads or name != "OMP_NUM_THREADS")
    }


def sweep_behind(root: Path, mark: str) -> int:
    """Start a process that cleans up after this process: it ends all processes with the mark and removes `root`.

    It starts the cleanup when the returned descriptor is closed, because this process has ended. It is no child of this process, because
    Ray kills the children of a worker.
    """
    from paceline.launch.agent.job_processes import guardian_argv, guardian_order

    reading, writing = os.pipe()
    subprocess.run(
        # A shell gives a background process an empty stdin, unless the stdin is redirected.
        ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- & :', "sh", *guardian_argv()],
        start_new_session=True,
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        check=True,
    )
    os.close(reading)
    os.write(writing, guardian_order(mark, [root]).encode())
    return writing
