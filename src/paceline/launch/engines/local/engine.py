"""This machine: one agent for each of N hosts, as `paceline run --local-hosts N` starts them."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from paceline.job_file import job_descriptor, job_document
from paceline.launch.engines.base import Capabilities, Engine, Request, known_options
from paceline.launch.engines.detached import DetachedEngine
from paceline.launch.engines.package import unpack
from paceline.launch.engines.submission import Submission, host_file


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """This machine, which has no options."""
    known_options("local", options, ())
    return LocalEngine(environ)


@dataclass(frozen=True, slots=True)
class LocalEngine(DetachedEngine):
    """Hosts algo-1 ... algo-N on this machine; the job outlives the terminal, not the machine."""

    environ: Mapping[str, str]
    """Variables of the process that submits, which the job's keeper gets too."""

    @property
    def name(self) -> str:
        """As --engine has it."""
        return "local"

    @property
    def capabilities(self) -> Capabilities:
        """All hosts or none, nothing starts again by itself, everything can be read while it runs."""
        return Capabilities(
            gang=True,
            requeues=False,
            warning_seconds=None,
            shared_files=True,
            outlives_submitter=True,
            live_recording=True,
        )

    def plan(self, job: Submission) -> Request:
        """The job file of one `paceline run --local-hosts N`."""
        document = {"local_hosts": job.hosts, "job": job_document(job.file), "directory": "code"}
        return Request(engine=self.name, job=job, document=document)

    def hold(self, request: Request, run_dir: Path, environ: Mapping[str, str]) -> int:
        """Run it in a snapshot of the code, so that what is edited meanwhile does not change the job."""
        directory = Path.cwd()
        if request.job.package is not None:
            directory = run_dir / "code"
            unpack(Path(request.job.package.archive), directory)
        leash, held = os.pipe()
        file = replace(host_file(request.job, port=0), run_dir=str(run_dir.parent))
        with job_descriptor(file) as (descriptor, argv):
            job = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "paceline.launch.programs.leashed", str(leash)),
                    *(*argv, "--local-hosts", str(request.job.hosts)),
                ],
                cwd=directory,
                env={**environ, **request.job.environment},
                stdin=subprocess.DEVNULL,
                pass_fds=[leash, descriptor],
            )
        os.close(leash)
        try:
            return _wait(job)
        finally:
            os.close(held)


def _wait(job: "subprocess.Popen[bytes]") -> int:
    """The job's exit code; signals go on to it. A job means a second SIGINT, not a second SIGTERM, as "now"."""
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
