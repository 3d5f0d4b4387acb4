import os
import signal
import sys
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def leave(number, frame):
    torch.save(model.state_dict(), f"last_{dist.get_rank()}.pt")
    sys.exit(0)


signal.signal(signal.SIGUSR1, leave)
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 8))
for step in range(100):
    loss = model(torch.randn(4, 8)).sum()
    loss.backward()
