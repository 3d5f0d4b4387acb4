"""S02: rank 1 may use a quarter of a CPU and is stopped for the rest of each period. Needs root and a writable cgroup.

paceline run --nproc-per-node 2 examples/broken/s02_throttled.py --steps 1000
"""

import time
from contextlib import ExitStack

from training import Training, arguments

from paceline.parts.lab.emulate.limits import cpu_limit

args = arguments(__doc__, cpus=0.25, compute_ms=10.0)


def compute() -> None:
    """Use this much CPU time, however long that takes."""
    end = time.process_time() + args.compute_ms / 1000
    while time.process_time() < end:
        pass


with ExitStack() as limits, Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            limits.enter_context(cpu_limit(args.cpus)).add()
        compute()
        training.step()
