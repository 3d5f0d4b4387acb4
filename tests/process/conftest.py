"""Real runs of `paceline`, each in a directory of its own, ended with everything below it however the test ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from patience import patient

from paceline.facts import Evidence
from paceline.recording.evidence import evidence

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass
class Finished:
    code: int
    out: str
    err: str


@dataclass
class Job:
    """One `paceline run` that lasts. Its output goes to files, so that nothing blocks on a pipe nobody reads."""

    process: subprocess.Popen
    out_file: Path
    err_file: Path

    @property
    def out(self) -> str:
        return self.out_file.read_text()

    @property
    def err(self) -> str:
        return self.err_file.read_text()

    def wait(self, timeout: float = 60.0) -> Finished:
        return Finished(self.process.wait(patient(timeout)), self.out, self.err)

    def until(self, condition: Callable[[], bool], timeout: float = 60.0) -> None:
        deadline = time.monotonic() + patient(timeout)
        while not condition():
            if self.process.poll() is not None and not condition():
                raise AssertionError(f"ended with {self.process.returncode}\n{self.out}\n{self.err}")
            assert time.monotonic() < deadline, f"did not come true\n{self.out}\n{self.err}"
            time.sleep(0.02)

    def until_printed(self, text: str, times: int = 1, timeout: float = 60.0) -> None:
        self.until(lambda: self.out.count(text) >= times, timeout)


@dataclass
class Paceline:
    """Starts `paceline` with the working directory and the environment of this test."""

    directory: Path
    environment: dict[str, str]
    jobs: list[Job] = field(default_factory=list)

    def start(self, *argv: str, cwd: Path | None = None, prefix: tuple[str, ...] = (), **environment: str) -> Job:
        number = len(self.jobs)
        out, err = self.directory / f"job{number}.out", self.directory / f"job{number}.err"
        with out.open("wb") as out_stream, err.open("wb") as err_stream:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "paceline", *argv],
                cwd=cwd or self.directory,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out_stream,
                stderr=err_stream,
                start_new_session=True,
            )
        self.jobs.append(Job(process, out, err))
        return self.jobs[-1]

    def run(self, *argv: str, timeout: float = 90.0, **options) -> Finished:
        return self.start(*argv, **options).wait(timeout)

    def script(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def evidence(self) -> Evidence:
        (run,) = (self.directory / ".paceline" / "runs").iterdir()
        return evidence(run)

    def left(self) -> list[int]:
        """Processes of this test's runs that are still here, by the test's own mark."""
        needle = f"PACELINE_TEST={self.environment['PACELINE_TEST']}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                    if state != b"Z" and needle in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Paceline]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PET_", "SM_"))
    }
    environment.update(
        PYTHONPATH=os.pathsep.join(
            entry for entry in (str(Path("src").resolve()), os.environ.get("PYTHONPATH")) if entry
        ),
        XDG_STATE_HOME=str(tmp_path / "state"),
        XDG_CONFIG_HOME=str(tmp_path / "config"),
        PACELINE_TEST=tmp_path.name + str(os.getpid()),
    )
    runner = Paceline(tmp_path, environment)
    yield runner
    for job in runner.jobs:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGKILL)
            job.process.wait()
    for pid in runner.left():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
