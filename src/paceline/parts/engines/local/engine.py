"""Runs a job on this machine, with one agent for each of N hosts, as `paceline run --local-hosts N` does."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import ClassVar

from paceline.job_file import job_descriptor, job_document
from paceline.parts.engines.base import Engine, Request, known_options
from paceline.parts.engines.detached import DetachedEngine
from paceline.parts.engines.host_check import StartedHost, this_machine
from paceline.parts.engines.package import unpack
from paceline.parts.engines.submission import Submission, host_file
from paceline.recording.runs import runs_root


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The engine of this machine, which has no options."""
    known_options("local", options, ())
    return LocalEngine(environ)


@dataclass(frozen=True, slots=True)
class LocalEngine(DetachedEngine):
    """The hosts algo-1 ... algo-N on this machine. The job outlives the terminal, but not the machine."""

    requeues: ClassVar[bool] = False
    """The hosts of one machine are lost together."""
    environ: Mapping[str, str]
    """Environment variables of the submitting process. The job's keeper gets them too."""

    @property
    def name(self) -> str:
        """The engine's name, as in --engine."""
        return "local"

    def plan(self, job: Submission) -> Request:
        """The job file of one `paceline run --local-hosts N`."""
        document = {"local_hosts": job.hosts, "job": job_document(job.file), "directory": "code"}
        return Request(engine=self.name, job=job, document=document)

    def start_on_hosts(
        self, job: Submission, wait_seconds: float
    ) -> AbstractAsyncContextManager[Sequence[StartedHost]]:
        """This machine, which is one host whatever the number of hosts of the job."""
        port = job.file.job.agents_port
        directory = job.file.run_dir or str(runs_root(environ=self.environ))
        return this_machine(os.uname().nodename, directory, [port] if port else [])

    def hold(self, request: Request, run_dir: Path, environ: Mapping[str, str]) -> int:
        """Run the job in a copy of the code, so that later edits do not change the job."""
        directory = Path.cwd()
        if request.job.package is not None:
            directory = run_dir / "code"
            unpack(Path(request.job.package.archive), directory)
        lifeline, held = os.pipe()
        file = replace(host_file(request.job, port=0), run_dir=str(run_dir.parent))
        with job_descriptor(file) as (descriptor, argv):
            job = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "paceline.launch.programs.lifeline", str(lifeline)),
                    *(*argv, "--local-hosts", str(request.job.hosts)),
                ],
                cwd=directory,
                env={**environ, **request.job.environment},
                stdin=subprocess.DEVNULL,
                pass_fds=[lifeline, descriptor],
            )
        os.close(lifeline)
        try:
            return _wait(job)
        finally:
            os.close(held)


def _wait(job: "subprocess.Popen[bytes]") -> int:
    """Wait for the job's exit code, and pass signals on to the job. It takes a second SIGINT, not a second SIGTERM, as "now"."""
    asked: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        job.send_signal(signal.SIGTERM if len(asked) == 1 else signal.SIGINT)
        if len(asked) > 1:
            job.send_signal(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    code = job.wait()
    return code if code >= 0 else 128 - code
