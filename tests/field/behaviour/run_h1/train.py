"""On SIGTERM a rank says good-bye with code 0; the preemption reaches one host's process only."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def leave(number, frame):
    print("rank", os.environ["RANK"], "is told to stop", flush=True)
    os._exit(0)


signal.signal(signal.SIGTERM, leave)
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(400):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
    if step == 60 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGTERM)
print("done")
