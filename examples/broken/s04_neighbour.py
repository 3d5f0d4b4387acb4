"""S04: two programs that do not belong to the job use the CPUs of the host of rank 1.

paceline run --nproc-per-node 2 examples/broken/s04_neighbour.py --steps 1000
"""

import os
import subprocess
import sys
import time

from training import Training, arguments

args = arguments(__doc__, programs=2, compute_ms=10.0)
# Ends by itself when the rank is gone, however that ended.
TURN = f"import os\nwhile os.path.exists('/proc/{os.getpid()}'):\n    sum(range(100_000))\n"


def compute() -> None:
    """Use this much CPU time, however long that takes."""
    end = time.process_time() + args.compute_ms / 1000
    while time.process_time() < end:
        pass


with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            for _ in range(args.programs):
                # Without the job's environment and below nobody: as any other user's program would be.
                subprocess.run(["setsid", "--fork", sys.executable, "-c", TURN], env={}, check=True)
        compute()
        training.step()
