"""A job that ends as a whole, again and again, and goes on from its saved state: each line equal to torchrun's."""

import os
import signal
import subprocess
import sys
import time

import pytest
from kills import SCRIPTS, Case, lines_of, reference
from patience import patient
from watching import children, command

from paceline.launch.agent.guardian import is_guardian

pytestmark = [pytest.mark.process, pytest.mark.resume, pytest.mark.timeout(300)]
CASES = {
    "SIGKILL": Case("full", ("--workers", "2")),
    "SIGTERM": Case("bookkeeping"),
    # Of the guardian too: nobody ends the ranks but the job that goes on.
    "SIGKILL of both": Case("bookkeeping"),
}


class Part:
    """One `paceline run` of the job, in a process that is ended from outside."""

    def __init__(self, number, resume, case, directory, environment, *options):
        self.name, self.directory = f"r-part{number}", directory
        argv = [
            "run",
            "--set",
            f"run_id={self.name}",
            "--set",
            "progress=off",
            "--nproc-per-node",
            "2",
            "--resume",
            resume,
            *options,
        ]
        self.err = directory / f"{self.name}.err"
        with self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "paceline",
                    *argv,
                    str(SCRIPTS / f"{case.script}.py"),
                    *arguments(case, directory),
                ],
                cwd=directory,
                env={**environment, "SLOW_SECONDS": "0.03"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
            )

    def until_lines(self, count):
        """Wait until rank 0 has written so many lines that the job kept a state on the way, or the job is over."""
        deadline = time.monotonic() + patient(120)
        while self.process.poll() is None and (self.lines() < count or not self.has_saved()):
            assert time.monotonic() < deadline, self.err.read_text()
            time.sleep(0.01)

    def lines(self):
        return len(lines_of(self.directory / "out").get(0, ()))

    def has_saved(self):
        return any((self.directory / ".paceline/runs" / self.name / "state").glob("step-*/manifest.json"))

    def end(self, how):
        below = children(self.process.pid) if how.endswith(" of both") else []
        guardians = [pid for pid in below if is_guardian(pid)]
        # By themselves they could come to the script's end before the next job ends them.
        for pid in below:
            if str(SCRIPTS) in command(pid) and pid not in guardians:
                os.kill(pid, signal.SIGSTOP)
        for pid in (self.process.pid, *guardians):
            os.kill(pid, getattr(signal, how.partition(" ")[0]))
        assert len(guardians) == how.endswith(" of both")
        return self.process.wait(patient(60))


def arguments(case, directory):
    return ["--out", str(directory / "out"), *case.argv]


@pytest.mark.parametrize("end", CASES)
def test_a_job_that_is_ended_as_a_whole_goes_on_to_what_torchrun_writes(end, tmp_path, user_environment):
    case = CASES[end]
    wanted = reference(case, 2, tmp_path / "references", user_environment)
    directory = tmp_path / "job"
    (directory / "out").mkdir(parents=True)
    part, resume = None, "auto"
    for number, lines in enumerate((12, 22, 10**9)):
        part = Part(number, resume, case, directory, user_environment)
        part.until_lines(lines)
        if number < 2:
            code = part.end(end)
            assert code == (204 if end == "SIGTERM" else -signal.SIGKILL), part.err.read_text()
        if end == "SIGTERM" and number < 2:
            assert (
                f"to go on from it: paceline run --set progress=off --nproc-per-node 2 --resume {part.name} "
                in part.err.read_text()
            )
        resume = part.name
    assert part.process.wait(patient(60)) == 0, part.err.read_text()
    assert ("its guardian had been killed" in part.err.read_text()) == (end == "SIGKILL of both")
    assert lines_of(directory / "out") == wanted
    # A job that has ended well leaves nothing to go on from.
    ended = Part(3, part.name, case, directory, user_environment)
    assert ended.process.wait(patient(60)) == 2 and "ended well" in ended.err.read_text()
    assert "error[F04]" in ended.err.read_text()
