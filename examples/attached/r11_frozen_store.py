"""R11: the process that holds the job's store is stopped, then every rank makes a new group.

torchrun --nproc-per-node 2 examples/attached/r11_frozen_store.py; then paceline why PID
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "broken"))
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
training = Training(args)
for step in training.steps():
    if training.breaks(step):
        # torchrun's agent holds it.
        os.kill(os.getppid(), signal.SIGSTOP)
    if step == args.at_step:
        dist.barrier()
        dist.new_group()
    training.step()
