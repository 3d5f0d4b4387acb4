"""A job may start the next one of a chain: through a service of the machine, or in a session of its own. It runs on when the job ends."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import patient

pytestmark = pytest.mark.process

# Starts what it finds in a directory, with the environment that lies beside it, as a queue of a machine does.
SERVICE = """
import json, os, subprocess, sys, time
while True:
    for name in [name for name in os.listdir(".") if name.endswith(".order")]:
        order = json.load(open(name))
        os.unlink(name)
        subprocess.Popen(order["argv"], env=order["environment"], start_new_session=order["session"])
    time.sleep(0.02)
"""
# Runs when the first job has gone, and says so. As a launcher it has the name of one.
NEXT = """
import os, sys, time
open("next.begun", "w").close()
while os.path.exists("job"):
    time.sleep(0.02)
open("next.done", "w").close()
"""
JOB = """
import json, os, subprocess, sys, time
way, argv = sys.argv[1], sys.argv[2:]
environment = dict(os.environ)
if way.startswith("service"):
    order = {"argv": argv, "environment": environment, "session": way == "service-session"}
    json.dump(order, open("new", "w"))
    os.rename("new", "next.order")
else:
    if way == "opted-out":
        environment["PACELINE_MARK"] = ""
    nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(argv, env=environment, start_new_session=True, **nowhere)
while not os.path.exists("next.begun"):
    time.sleep(0.02)
"""


def until(condition, seconds=30.0):
    deadline = time.monotonic() + patient(seconds)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def service(paceline):
    script = paceline.script("service.py", SERVICE)
    nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # It has its environment from the machine: it was there before the job.
    environment = {name: value for name, value in paceline.environment.items() if name != "PACELINE_TEST"}
    process = subprocess.Popen([sys.executable, script], cwd=paceline.directory, env=environment, **nowhere)
    yield
    process.kill()
    process.wait()


def run_chain(paceline, way, argv):
    """Whether the next program was there when the job had ended, and came to its end."""
    (paceline.directory / "job").touch()
    done = paceline.run("run", paceline.script("job.py", JOB), way, *argv)
    assert done.code == 0, done.err
    (paceline.directory / "job").unlink()
    try:
        until((paceline.directory / "next.done").exists, 5)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("way", ["service", "service-session"])
@pytest.mark.parametrize("launcher", ["next.py", "torchrun", "paceline"])
def test_what_a_service_starts_for_a_job_runs_on(paceline, service, way, launcher):
    script = paceline.script(launcher, NEXT)
    assert run_chain(paceline, way, [sys.executable, "-u", script, "run"])


@pytest.mark.parametrize(
    "argv",
    [["torchrun", "x.py"], ["paceline", "run", "x.py"], ["paceline", "submit", "x.py"]],
    ids=lambda argv: argv[1],
)
def test_a_launcher_in_a_session_of_its_own_runs_on(paceline, argv):
    script = paceline.script(argv[0], NEXT)
    assert run_chain(paceline, "session", [sys.executable, "-X", "utf8", "-u", script, *argv[1:]])


def test_the_next_job_of_a_chain_runs_and_ends_by_itself(paceline):
    script = paceline.script("next.py", NEXT)
    assert run_chain(paceline, "session", [sys.executable, "-m", "paceline", "run", script])


def test_a_program_that_is_opted_out_runs_on(paceline):
    assert run_chain(paceline, "opted-out", [sys.executable, paceline.script("next.py", NEXT)])


@pytest.mark.slow_but_first
@pytest.mark.parametrize("argv", [["next.py"], ["paceline", "top"], ["torchrun.py"]], ids=lambda argv: argv[0])
def test_any_other_program_in_a_session_of_its_own_ends_with_the_job(paceline, argv):
    script = paceline.script(argv[0], NEXT)
    assert not run_chain(paceline, "session", [sys.executable, script, *argv[1:]])


def test_a_launcher_that_a_rank_waits_for_ends_with_the_rank(paceline):
    waits = "import subprocess, sys\nsubprocess.Popen(sys.argv[1:], start_new_session=True).wait()\n"
    (paceline.directory / "job").touch()
    argv = [sys.executable, paceline.script("torchrun", NEXT)]
    job = paceline.start("run", paceline.script("waits.py", waits), *argv)
    job.until((paceline.directory / "next.begun").exists)
    job.process.terminate()
    job.wait()
    until(lambda: not any(b"torchrun" in command_of(pid) for pid in paceline.left()))


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
