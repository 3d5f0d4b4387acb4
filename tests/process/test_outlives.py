"""Nothing outlives a job, whatever a rank makes of itself and however the agents go."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

# Each leaves a process behind that sleeps for ten minutes, and writes its pid.
HIDING = """
import ctypes, os, subprocess, sys, time

def sleeper(path):
    open(path + ".new", "w").write(str(os.getpid()))
    os.rename(path + ".new", path)
    time.sleep(600)

def wipe():
    "What setproctitle does: its title goes over the environment."
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(b"\\0" * (end - start))

def titled(path):
    wipe()
    if os.fork() == 0:
        sleeper(path)

def cleared(path):
    subprocess.Popen(["env", "-i", sys.executable, "-c", SLEEP, path])

def own_session(path):
    subprocess.Popen([sys.executable, "-c", SLEEP, path], env={}, start_new_session=True)

def daemon(path):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", SLEEP, path], {})
        os._exit(0)
    os.wait()

SLEEP = "import os, sys, time; open(sys.argv[1] + '.new', 'w').write(str(os.getpid())); " \\
        "os.rename(sys.argv[1] + '.new', sys.argv[1]); time.sleep(600)"
globals()[sys.argv[1]](sys.argv[2])
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
if sys.argv[3] == "stays":
    time.sleep(600)
"""
WAYS = ["titled", "cleared", "own_session", "daemon"]


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_here(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow_but_first
@pytest.mark.parametrize("way", WAYS)
def test_what_a_rank_left_behind_ends_with_a_job_that_ends_well(paceline, way):
    path = paceline.directory / "pid"
    done = paceline.run("run", paceline.script("hiding.py", HIDING), way, str(path), "leaves")
    assert done.code == 0, done.err
    until(lambda: not is_here(int(path.read_text())), 10)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("way", WAYS)
def test_all_of_it_ends_when_everything_called_paceline_is_killed_at_once(paceline, way):
    path = paceline.directory / "pid"
    job = paceline.start("run", paceline.script("hiding.py", HIDING), way, str(path), "stays")
    until(path.exists)
    hidden = int(path.read_text())
    # The agent hears of a daemon's session within a second or two of its parent's end.
    if way == "daemon":
        until(lambda: parent_of(hidden) == job.process.pid)
        time_to_hear = time.monotonic() + 2.5
        until(lambda: time.monotonic() > time_to_hear)
    family = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent_of(pid) == job.process.pid]
    ranks = [pid for pid in family if b"hiding.py" in command_of(pid)]
    assert ranks
    # As `pkill -9 -f paceline` would, among the processes of this test alone.
    for pid in (job.process.pid, *family):
        if b"paceline" in command_of(pid) and pid not in ranks:
            os.kill(pid, signal.SIGKILL)
    job.process.wait()
    until(lambda: not any(map(is_here, (hidden, *ranks))), 15)


# One process beside the agent, one that is left to it by the program that it was before, and one that another of these starts meanwhile.
LAUNCHER = """
import os, subprocess, sys, time

def note(name, process):
    open(name + ".new", "w").write(str(process.pid))
    os.rename(name + ".new", name)

sleep = ["sleep", "600"]
note("beside", subprocess.Popen(sleep))
if agent := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1]))
note("left", subprocess.Popen(sleep))
if os.fork() == 0:
    while not os.path.exists("goes"):
        time.sleep(0.02)
    note("meanwhile", subprocess.Popen(sleep, start_new_session=True))
    os._exit(0)
os.setsid()
os.execv(sys.argv[1], sys.argv[1:])
"""
WAITS_FOR_IT = """
import os, time
open("goes", "w").close()
while not os.path.exists("meanwhile"):
    time.sleep(0.02)
time.sleep(2.5)
"""


@pytest.mark.slow
def test_what_a_program_started_that_became_the_agent_is_left(paceline):
    argv = [sys.executable, "-m", "paceline", "run", paceline.script("waits.py", WAITS_FOR_IT)]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *argv],
        cwd=paceline.directory,
        env=paceline.environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        timeout=90,
        check=False,
    )
    others = [int((paceline.directory / name).read_text()) for name in ("beside", "left", "meanwhile")]
    survived = [is_here(pid) for pid in others]
    for pid in filter(is_here, others):
        os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0 and survived == [True, True, True]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


ORPHANS = """
import os, time
for number in range(50):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
time.sleep(3)
state = lambda pid: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
print("zombies", sum(state(pid) == "Z" for pid in os.listdir("/proc") if pid.isdigit()))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes needs root")
def test_a_containers_first_process_buries_orphans(paceline):
    script = paceline.script("orphans.py", ORPHANS)
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "paceline", "run", script]
    done = subprocess.run(
        command, cwd=paceline.directory, env=paceline.environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert "zombies 0" in done.stdout
