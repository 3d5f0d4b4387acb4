"""What is left after something was killed: nothing, and somebody says why."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from patience import patient

pytestmark = [pytest.mark.process, pytest.mark.fault]

FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
# One child in a session of its own, one double fork, one plain.
subprocess.Popen(["sleep", "301"], start_new_session=True)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        time.sleep(302)
    os._exit(0)
subprocess.Popen(["sleep", "303"])
print("ready", flush=True)
time.sleep(300)
"""


def gone_within(paceline, seconds: float) -> bool:
    deadline = time.monotonic() + patient(seconds)
    while paceline.left():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def agents(paceline) -> dict[str, int]:
    """Host name to agent pid, from the recording."""
    (run,) = (paceline.directory / ".paceline" / "runs").iterdir()
    return {path.name: json.loads((path / "host.json").read_text())["agent_pid"] for path in (run / "hosts").iterdir()}


def test_nothing_outlives_an_agent_that_was_killed(paceline):
    job = paceline.start("run", "--nproc-per-node", "2", paceline.script("family.py", FAMILY))
    job.until_printed("ready", 2)
    job.until(lambda: len(paceline.left()) >= 9)
    job.process.send_signal(signal.SIGKILL)
    job.process.wait()
    assert gone_within(paceline, 5.0), paceline.left()


def test_the_scratch_directories_go_with_the_agent(paceline):
    job = paceline.start("run", paceline.script("family.py", FAMILY))
    job.until_printed("ready")
    environ = (Path("/proc") / str(paceline.left()[-1]) / "environ").read_bytes().split(b"\0")
    rings = next(Path(os.fsdecode(entry[18:])) for entry in environ if entry.startswith(b"PACELINE_RING_DIR="))
    assert rings.is_dir()
    job.process.send_signal(signal.SIGKILL)
    assert gone_within(paceline, 5.0)
    deadline = time.monotonic() + patient(5.0)
    while rings.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not rings.exists()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("killed", ["algo-1", "algo-2"])
def test_when_one_agent_of_two_is_killed_the_other_says_so_and_nothing_is_left(paceline, killed):
    script = paceline.script("family.py", FAMILY.replace("SIG_IGN", "SIG_DFL"))
    job = paceline.start("run", "--local-hosts", "2", "--nproc-per-node", "2", script)
    job.until_printed("ready", 4)
    os.kill(agents(paceline)[killed], signal.SIGKILL)
    finished = job.wait(10)
    assert finished.code == 200
    assert f"host {killed} is lost" in finished.err and "killed, or its machine is gone" in finished.err
    assert gone_within(paceline, 5.0), paceline.left()


def test_when_the_launcher_of_local_hosts_is_killed_nothing_is_left(paceline):
    job = paceline.start("run", "--local-hosts", "2", paceline.script("family.py", FAMILY))
    job.until_printed("ready", 2)
    job.process.send_signal(signal.SIGKILL)
    job.process.wait()
    assert gone_within(paceline, 8.0), paceline.left()


def test_a_normal_end_leaves_nothing_behind_either(paceline):
    script = paceline.script(
        "leaves.py", "import subprocess\nsubprocess.Popen(['sleep', '301'], start_new_session=True)\n"
    )
    assert paceline.run("run", script).code == 0
    assert paceline.left() == []


@pytest.mark.slow
def test_an_interpreter_that_hangs_at_exit_is_cut_off_with_the_code_it_meant(paceline):
    script = paceline.script(
        "hangs_at_exit.py",
        "import atexit, ctypes, sys, torch\n"
        "class HoldsTheGil:\n"
        "    def __del__(self, sleep=ctypes.PyDLL(None).sleep):\n"
        "        sleep(300)\n"
        "sys.modules['__main__'].__dict__['kept'] = HoldsTheGil()\n"
        "atexit.register(print, 'exit handler ran')\n"
        "parameter = torch.nn.Parameter(torch.ones(1))\n"
        "torch.optim.SGD([parameter], 0.1).step()\n"
        "print('buffered', end='')\n"
        "sys.exit(int(sys.argv[1]))\n",
    )
    for code in (0, 4):
        finished = paceline.run("run", script, str(code))
        assert finished.code == code, finished.err
        assert "exit handler ran" in finished.out and "buffered" in finished.out


def test_a_rank_killed_for_memory_says_who_killed_it(paceline):
    group = Path("/sys/fs/cgroup/memory") / paceline.environment["PACELINE_TEST"]
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(150 * 2**20))
    except OSError:
        pytest.skip("no memory control group can be made here")
    script = paceline.script(
        "eats.py",
        f"import os\nopen('{group}/cgroup.procs', 'w').write(str(os.getpid()))\nx = b'x' * (400 * 2**20)\n",
    )
    try:
        finished = paceline.run("run", script)
        assert finished.code == 137
        assert "OOM" in finished.err, finished.err
    finally:
        group.rmdir()


def test_a_sigkill_from_nobody_known_is_said_to_be_unknown(paceline):
    script = paceline.script("dies.py", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    finished = paceline.run("run", script)
    assert finished.code == 137 and "SIGKILL" in finished.err and "not judged" in finished.err


def test_a_full_disk_under_the_recording_does_not_touch_the_training(paceline):
    """The recording lies on a file system of 1 MiB; the script writes more than that to stdout."""
    script = paceline.script("loud.py", "for i in range(40000): print('x' * 99)\nopen('finished', 'w').close()\n")
    small = paceline.directory / "small"
    small.mkdir()
    mounted = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=1m tmpfs {small} && exec "$0" "$@"')
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    finished = paceline.run("run", "--run-dir", str(small), script, prefix=mounted)
    assert finished.code == 0 and (paceline.directory / "finished").exists()
    assert finished.out.count("\n") == 40000
    assert "could not be written" in finished.err
