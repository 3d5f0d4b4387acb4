"""N09: rank 1 is frozen by a control group, as `docker pause` does it, and thawed after a minute. Needs root.

paceline run --nproc-per-node 2 examples/broken/n09_frozen.py
"""

import os
import subprocess
import sys
from pathlib import Path

from training import Training, arguments

# A process beside the job: it freezes the rank, thaws it in time or when somebody wants to kill it, and removes the group.
FREEZER = """
import sys, time
from pathlib import Path
rank, home, switch, on, off, seconds = Path("/proc", sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:6], float(sys.argv[6])
def is_wanted():  # Signal 9 waits for a frozen process: bit 8 of those pending.
    pending = [line.split()[1] for line in (rank / "status").read_text().splitlines() if line[:7] in ("SigPnd:", "ShdPnd:")]
    return not any(int(mask, 16) & 0x100 for mask in pending)
(home / "cgroup.procs").write_text(rank.name)
(home / switch).write_text(on)
end = time.monotonic() + seconds
while time.monotonic() < end and rank.exists() and is_wanted():
    time.sleep(0.1)
(home / switch).write_text(off)
(home.parent / "cgroup.procs").write_text(rank.name) if rank.exists() and is_wanted() else time.sleep(1)
home.rmdir()
"""
V1, V2 = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")
args = arguments(__doc__, seconds=60)
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            group = (V1 if V1.is_dir() else V2) / f"paceline-n09-{os.getpid()}"
            group.mkdir()
            how = ("freezer.state", "FROZEN", "THAWED") if V1.is_dir() else ("cgroup.freeze", "1", "0")
            command = [sys.executable, "-c", FREEZER, str(os.getpid()), str(group), *how, str(args.seconds)]
            subprocess.Popen(command, start_new_session=True, env={})
        training.step()
