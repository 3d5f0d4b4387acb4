"""`paceline why PID` of jobs that run: started by torchrun, by torch.multiprocessing and by hand, and prepared by nobody."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import patient

REPOSITORY = Path(__file__).resolve().parents[2]
BROKEN, ATTACHED = REPOSITORY / "examples" / "broken", REPOSITORY / "examples" / "attached"
MARK = "PACELINE_ATTACHED_TEST"
SPAWNS = """
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def train(rank, port):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for step in range(1000):
        if rank == 1 and step == 12:
            print("broken at", time.time_ns(), flush=True)
            time.sleep(3600)
        dist.all_reduce(torch.ones(3))

if __name__ == "__main__":
    mp.spawn(train, (sys.argv[1],), 2)
"""

pytestmark = pytest.mark.process
slow = pytest.mark.slow


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextmanager
def job(tmp_path, *commands):
    """Programs of one job, with its output; every process of it is ended."""
    mark = f"{tmp_path.name}-{os.getpid()}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PYTHONPATH"))}
    out = tmp_path / "out.txt"
    with out.open("wb") as stream:
        started = [
            subprocess.Popen(
                words,
                env={**clean, "OMP_NUM_THREADS": "1", MARK: mark, **more},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
            for words, more in commands
        ]
    try:
        yield started, out
    finally:
        while left := marked(mark):
            for pid in left:
                for number in (signal.SIGCONT, signal.SIGKILL):
                    try:
                        os.kill(pid, number)
                    except ProcessLookupError:
                        continue
            time.sleep(0.02)
        for process in started:
            process.wait()


def marked(mark):
    found = []
    for entry in os.listdir("/proc"):
        try:
            state = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()[0]
            if state != b"Z" and f"{MARK}={mark}".encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(int(entry))
        except (OSError, IndexError):
            continue
    return found


def printed(out, text):
    deadline = time.monotonic() + patient(60)
    while text not in out.read_text(errors="replace"):
        assert time.monotonic() < deadline, out.read_text(errors="replace")
        time.sleep(0.05)


def why(pid, *more):
    words = [sys.executable, "-m", "paceline", "why", str(pid), "--json", *more]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def first(pid):
    """The first finding once there is one: a stall needs three seconds and more of a busy machine."""
    deadline = time.monotonic() + patient(60)
    while not (findings := why(pid)["findings"]):
        assert time.monotonic() < deadline
    return findings[0]


def torchrun(port, script, *arguments, size=2):
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size), "--master-port", port]
    return [*words, str(script), *arguments], {}


def by_hand(port, script, rank):
    told = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
    }
    return [sys.executable, str(script)], told


def test_a_rank_of_torchrun_that_sleeps_is_named_with_its_line(tmp_path, port):
    with job(tmp_path, torchrun(port, BROKEN / "n01_asleep.py", "--rank", "2", size=3)) as ((launcher,), out):
        printed(out, "broken at")
        found = first(launcher.pid)
        assert (found["code"], found["ranks"], found["confidence"]) == ("N01", [2], "high")
        assert "n01_asleep.py:14" in found["saw"][0]
        # Its ranks are found by any process of the job.
        rank = next(pid for pid in marked(f"{tmp_path.name}-{os.getpid()}") if pid != launcher.pid)
        assert why(rank)["findings"][0]["code"] == "N01"


@slow
def test_a_rank_that_has_left_its_loop_is_told_from_one_in_it(tmp_path, port):
    with job(tmp_path, torchrun(port, BROKEN / "m05_barrier.py")) as ((launcher,), out):
        printed(out, "broken at")
        found = first(launcher.pid)
        assert (found["code"], found["ranks"]) == ("M05", [1])
        assert "m05_barrier.py" in found["saw"][0] and "None" not in found["saw"][0]


@slow
def test_a_child_of_torchs_spawn_is_found_by_what_it_has_set_itself(tmp_path, port):
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNS)
    with job(tmp_path, ([sys.executable, str(script), port], {})) as ((launcher,), out):
        printed(out, "broken at")
        found = first(launcher.pid)
        assert (found["code"], found["ranks"]) == ("N01", [1])


@slow
def test_a_rank_that_is_gone_is_said_where_nobody_ends_the_others(tmp_path, port):
    script = ATTACHED / "c16_left_alone.py"
    with job(tmp_path, by_hand(port, script, 0), by_hand(port, script, 1)) as ((left, gone), _):
        assert gone.wait(patient(60)) == 7
        found = first(left.pid)
        assert (found["code"], found["ranks"]) == ("C16", [1])


@slow
def test_a_store_that_does_not_answer_is_said(tmp_path, port):
    with job(tmp_path, torchrun(port, ATTACHED / "r11_frozen_store.py")) as ((launcher,), out):
        printed(out, "broken at")
        assert first(launcher.pid)["code"] == "R11"


@slow
def test_of_a_job_that_trains_nothing_is_said(tmp_path, port):
    with job(tmp_path, torchrun(port, BROKEN / "n01_asleep.py", "--at-step", "100000", "--steps", "100000")) as (
        (launcher,),
        out,
    ):
        deadline = time.monotonic() + patient(60)
        while not out.exists() or len(marked(f"{tmp_path.name}-{os.getpid()}")) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for _ in range(3):
            answer = why(launcher.pid)
            assert [one for one in answer["findings"] if one["level"] not in ("waiting", "slow", "quality")] == []
        assert launcher.poll() is None
