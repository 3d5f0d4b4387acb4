"""A kernel or a sandbox may refuse a system call: a job starts, is restarted and ends as it would without, and leaves nothing behind."""

import errno
import os
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the calls are those of x86_64"),
]

REFUSE = Path(__file__).parent / "scripts" / "refuse.py"
# What old kernels lack, and what the filters of containers and of gVisor refuse: asm/unistd_64.h.
CALLS = {
    "pidfd_open": 434, "pidfd_send_signal": 424, "ptrace": 101, "process_vm_readv": 310, "memfd_create": 319, "prctl": 157,
    "fallocate": 285, "flock": 73, "sched_setaffinity": 203, "sched_getaffinity": 204, "sched_setscheduler": 144,
    "setpriority": 141, "inotify_init1": 294, "eventfd2": 290, "unshare": 272, "mount": 165, "close_range": 436, "statx": 332,
    "clone3": 435, "copy_file_range": 326, "getrandom": 318,
}  # fmt: skip
# Rank 1 fails in the first attempt while rank 0 sleeps, with a process of its own in a session of its own.
JOB = """
import os, subprocess, sys, time
import paceline
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
for _ in range(3):
    paceline.step()
if attempt == "0":
    if rank == "1":
        while not os.path.exists("sleeper"):
            time.sleep(0.02)
        sys.exit(3)
    child = subprocess.Popen(["sleep", "600"], env={"PACELINE_TEST": os.environ["PACELINE_TEST"]}, start_new_session=True)
    open("new", "w").write(str(child.pid))
    os.rename("new", "sleeper")
    time.sleep(600)
print("rank", rank, "is done", flush=True)
"""


REFUSED = [
    pytest.param(call, error, id=f"{call}-{errno.errorcode[error]}")
    for call in CALLS
    for error in (errno.ENOSYS, errno.EPERM)
    # Told EPERM, the C library starts no thread in any program.
    if (call, error) != ("clone3", errno.EPERM)
]


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("call", "error"), REFUSED)
def test_a_job_runs_and_ends_where_a_call_is_refused(paceline, call, error):
    script = paceline.script("job.py", JOB)
    prefix = (sys.executable, str(REFUSE), str(CALLS[call]), str(error))
    job = paceline.start("run", "--nproc-per-node", "2", "--max-restarts", "1", script, prefix=prefix)
    finished = job.wait()
    assert (finished.code, sorted(finished.out.splitlines())) == (0, ["rank 0 is done", "rank 1 is done"]), finished.err
    assert "Traceback" not in finished.err
    # It is told where the way around is worse, and told once.
    assert finished.err.count("has no pidfd") == (call == "pidfd_open")
    assert finished.err.count("does not let an agent adopt") == (call == "prctl")
    if call == "prctl":
        # Nobody adopts what has left its session and has no mark.
        return
    deadline = time.monotonic() + 10
    while paceline.left():
        assert time.monotonic() < deadline
        time.sleep(0.05)
