"""Starts unmodified scripts as an agent would start its workers, without an agent, and reads what they left."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from patience import patient
from ports import free_port

from paceline.part import rank_modules
from paceline.parts.resume.recording.state_buffer import StateHeader, new_buffer
from paceline.recording.ring import Record, RingHeader, RingReader, parse_records

TORCH_ABORTS_AT_EXIT = "terminate called without an active exception\n"
SCRIPTS = Path(__file__).parents[1] / "worker" / "scripts"
RUNNER = Path(__file__).parents[2] / "src" / "paceline" / "parts" / "resume" / "worker" / "run_script.py"


@dataclass(frozen=True)
class Left:
    """What one process tree left behind."""

    code: int
    out: str
    err: str


@dataclass
class Workplace:
    """The directories and the environment that an agent gives its workers."""

    directory: Path
    environment: dict[str, str]
    keeps_state: bool = False
    """Python programs start as with `--resume auto`: with a state buffer, through the runner."""
    headers: list[StateHeader] = field(default_factory=list)
    """Of the state buffer of each rank that keeps its state, in the order of their start."""

    @property
    def rings(self) -> list[tuple[RingHeader, list[Record]]]:
        """Every ring, in rank order."""
        found = []
        for path in (self.directory / "rings").glob("*.ring"):
            reader = RingReader(path)
            found.append((reader.header(), parse_records(reader.drain()[0])))
            reader.close()
        return sorted(found, key=lambda ring: ring[0].rank)

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in (self.directory / "errors").glob("*.json")]

    def start(
        self,
        *command: str,
        rank: int = 0,
        world_size: int = 1,
        port: int | None = None,
        stdin: bool = False,
        **more: str,
    ) -> subprocess.Popen[str]:
        """Start one worker. A script's name stands for `python -u <script>`. `stdin`: it reads from a pipe."""
        if command[0].endswith(".py"):
            command = (sys.executable, "-u", str(SCRIPTS / command[0]), *command[1:])
        contract = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": world_size,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port or free_port(),
        }
        environment = self.environment | {name: str(value) for name, value in contract.items()} | more
        descriptors: tuple[int, ...] = ()
        if self.keeps_state and command[0] == sys.executable:
            self.headers.append(StateHeader(new_buffer()))
            descriptors = (self.headers[-1].descriptor,)
            environment["PACELINE_STATE_FD"] = str(descriptors[0])
            place = next(number for number, word in enumerate(command[1:], 1) if word == "-m" or word[0] != "-")
            command = (*command[:place], os.fspath(RUNNER), *command[place:])
        return subprocess.Popen(
            command,
            env=environment,
            pass_fds=descriptors,
            stdin=subprocess.PIPE if stdin else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str, world_size: int = 1, **more: str) -> list[Left]:
        """Start all ranks, wait for all."""
        port = free_port()
        ranks = [
            self.start(*command, rank=rank, world_size=world_size, port=port, **more) for rank in range(world_size)
        ]
        with ExitStack() as started:
            for process in ranks:
                started.callback(_end, process)
            return [self._left_by(process) for process in ranks]

    def _left_by(self, process: subprocess.Popen[str]) -> Left:
        out, err = process.communicate(timeout=patient(100))
        return self._without_torchs_own_end(process, Left(process.returncode, out, err))

    def _without_torchs_own_end(self, process: subprocess.Popen[str], left: Left) -> Left:
        # torch 2.13 aborts while it exits in about 1 of 40 DDP runs, without paceline too (docs/running.md): no matter of these tests.
        if left.code != -signal.SIGABRT or TORCH_ABORTS_AT_EXIT not in left.err:
            return left
        codes = [header.exit_code for header, _ in self.rings if header.pid == process.pid and header.exiting]
        return Left(
            codes[0] if codes and codes[0] is not None else left.code,
            left.out,
            left.err.replace(TORCH_ABORTS_AT_EXIT, ""),
        )


def _end(process: subprocess.Popen[str]) -> None:
    """Its tree too. A process that has been waited for has none of ours left to end."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def workplace(user_environment: dict[str, str], repository: Path) -> Iterator[Workplace]:
    with _workplace(user_environment, repository) as workplace:
        yield workplace


@pytest.fixture(scope="module")
def shared_workplace(
    make_user_environment: Callable[[Path], dict[str, str]], repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workplace]:
    """One for all tests of a module that look at the same run."""
    with _workplace(make_user_environment(tmp_path_factory.mktemp("state")), repository) as workplace:
        yield workplace


@contextmanager
def _workplace(user_environment: dict[str, str], repository: Path) -> Iterator[Workplace]:
    # Not tmp_path: the path of a UNIX socket has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        directory = Path(name)
        for part in ("rings", "sockets", "errors"):
            (directory / part).mkdir(mode=0o700)
        environment = user_environment | {
            "PYTHONPATH": str(repository / "src" / "paceline" / "worker" / "site"),
            "PACELINE_RUN_ID": "r-test",
            "PACELINE_ATTEMPT": "0",
            "PACELINE_HOST": "algo-1",
            "PACELINE_MARK": "test",
            "PACELINE_RING_DIR": str(directory / "rings"),
            "PACELINE_SOCKET_DIR": str(directory / "sockets"),
            "PACELINE_ERROR_DIR": str(directory / "errors"),
            "PACELINE_PARTS": rank_modules(),
        }
        workplace = Workplace(directory, environment)
        yield workplace
        for header in workplace.headers:
            os.close(header.descriptor)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    """Write a script of a few lines and say where."""

    def write(text: str, name: str = "script.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return os.fspath(path)

    return write
