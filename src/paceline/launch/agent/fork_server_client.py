"""The agent's side of the fork server: a process per host that has imported torch, and from which the ranks of a restart are forked."""

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.prctl import is_subreaper
from paceline.probes.cgroup import control_group, memory_counters
from paceline.probes.host_counters import memory_facts, parse_meminfo
from paceline.recording.ring import RingHeader

PROGRAM = Path(__file__).resolve().parents[2] / "worker" / "fork_server.py"
STATE_VARIABLE = "PACELINE_STATE_FD"
"""The variable with which a rank finds the descriptor of its state buffer."""
# Variables that say which rank a process is. The fork server is not a rank, so it must not have them when it imports packages.
OF_A_RANK = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR", "MASTER_PORT", "PACELINE_STORE_PORT", "TORCHELASTIC_ERROR_FILE",
    "PACELINE_ATTEMPT",
    STATE_VARIABLE,
)  # fmt: skip
_MOST_BYTES = 4096
_ANSWER_SECONDS = 5.0
_LEAVING_SECONDS = 1.0
_LOADED_SECONDS = 0.02
_LOADING = "it has not imported torch yet"
# A fork server is started only if this much memory is free, several times what it uses.
LEAST_MEMORY_BYTES = 1 << 30
NOT_PYTHON = "the program is not a script or a module of this Python"


class ForkRefused(Exception):
    """No rank can be forked now. The text says why."""


@dataclass(frozen=True, slots=True)
class ForkedProcess:
    """A rank that was forked. Its parent is this agent, which adopts orphans."""

    pid: int
    """Its process id."""

    def wait(self) -> int:
        """Wait for its end. Returns the exit code, or minus a signal's number, as subprocess does."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass(slots=True)
class ForkServer:
    """A running fork server."""

    python: str
    """Its interpreter."""
    process: subprocess.Popen[bytes]
    """The process."""
    connection: socket.socket
    """The socket on which it answers."""
    _state: str = _LOADING

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_loading(self) -> bool:
        """It will be ready later."""
        return self.refusal() == _LOADING

    async def loaded(self, timeout_seconds: float, is_wanted: Callable[[], bool]) -> None:
        """Wait while it imports torch: it began before a new process would, and does it once for all ranks.

        `is_wanted`: the attempt has not been given up.
        """
        deadline = time.monotonic() + timeout_seconds
        while self.is_loading and is_wanted() and time.monotonic() < deadline:
            await asyncio.sleep(_LOADED_SECONDS)

    def refusal(self) -> str | None:
        """Why no rank can be forked from it now; None: it is ready."""
        if self.process.poll() is not None:
            return self._how_it_left()
        if self._state:
            with suppress(BlockingIOError):
                said = _document(self.connection.recv(_MOST_BYTES, socket.MSG_DONTWAIT))
                self._state = said.get("unusable", "") if said else self._how_it_left()
        return self._state or None

    def fork(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str | None,
        out: int,
        err: int,
        state: int | None = None,
    ) -> ForkedProcess:
        """Fork a rank. `argv`: as a new process would be started; `out`, `err`: descriptors of its output.

        `state`: descriptor of the buffer in which the rank keeps its state; None: it keeps none.

        Raises:  ForkRefused: the program cannot be started in this way, or there is no answer
        """
        if (refusal := self.refusal()) is not None:
            raise ForkRefused(refusal)
        if (program := forkable(argv, self.python)) is None:
            raise ForkRefused(NOT_PYTHON)
        order = {"argv": program, "environment": dict(environment), "directory": directory}
        read, write = os.pipe()
        try:
            with tempfile.TemporaryFile() as file:
                file.write(json.dumps(order).encode())
                file.seek(0)
                self.connection.settimeout(_ANSWER_SECONDS)
                socket.send_fds(
                    self.connection, [b"{}"], [file.fileno(), out, err, read, *([] if state is None else [state])]
                )
                answer = _document(self.connection.recv(_MOST_BYTES))
            if "pid" not in answer:
                raise ForkRefused(answer.get("refused") or self._how_it_left())
            os.write(write, b".")
        except ConnectionError as error:
            raise ForkRefused(self._how_it_left()) from error
        except OSError as error:
            # An answer that comes too late would be taken for that of the next rank.
            self.close()
            raise ForkRefused(f"the fork server does not answer: {error}") from error
        finally:
            # A rank that was not let go ends.
            os.close(read)
            os.close(write)
        return ForkedProcess(answer["pid"])

    def _how_it_left(self) -> str:
        # Its socket is closed a moment before it can be waited for.
        with suppress(subprocess.TimeoutExpired):
            return f"the fork server ended with {self.process.wait(_LEAVING_SECONDS)}"
        return "the fork server has left"

    def close(self) -> None:
        """End the fork server. Ranks that were forked go on."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


def why_not(headers: Iterable[RingHeader], argv: Sequence[str], python: str, environ: Mapping[str, str]) -> str:
    """Why the ranks of this job cannot be forked, as far as it is known after their first step; "": they can."""
    if forkable(argv, python) is None:
        return NOT_PYTHON
    if any(header.environment_changed for header in headers):
        return (
            "the script changes its environment before it imports torch, which would read it too early in a fork server"
        )
    if not is_subreaper():
        return "this machine does not let an agent adopt processes"
    off = environ.get("PACELINE_OFF", "").lower()
    if "all" in off or "exit" in off:
        return f"PACELINE_OFF={off} turns off what keeps the fork server out of tracebacks"
    if (left := memory_left_bytes()) < LEAST_MEMORY_BYTES:
        return f"only {left >> 20} MiB of memory are left for a fork server"
    return ""


def memory_left_bytes() -> int:
    """Memory that this host's processes can still take: of the machine, and of their control group."""
    left = memory_facts(parse_meminfo(Path("/proc/meminfo").read_text()))["available_bytes"]
    group = control_group("memory")
    if group is not None:
        counters = memory_counters(group)
        if counters.limit_bytes is not None and counters.used_bytes is not None:
            left = min(left, counters.limit_bytes - counters.used_bytes)
    return left


def start_fork_server(
    python: str, environment: Mapping[str, str], directory: str | None, *, keeps_state: bool = False
) -> ForkServer:
    """Start a fork server, which then imports torch. `environment`: that of one of the ranks. `keeps_state`: the ranks keep their state.

    Raises:  OSError: the interpreter cannot be executed
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [python, "-u", str(PROGRAM), str(theirs.fileno()), *(["keeps-state"] if keeps_state else [])],
            env={name: value for name, value in environment.items() if name not in OF_A_RANK},
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ForkServer(python, process, ours)


def forkable(argv: Sequence[str], python: str) -> list[str] | None:
    """The program of a rank's argv in the form that the fork server takes; None: it is started in another way.

    Holds:   forkable(["p", "-u", "-m", "train"], "p") == ["-m", "train"]; of ["sh", "train.sh"] it is None
    """
    program = list(argv[2:])
    is_program = bool(program) and program[0] != "-c" and program != ["-m"]
    return program if list(argv[:2]) == [python, "-u"] and is_program else None


def _document(message: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message) if message else {}
    return found
