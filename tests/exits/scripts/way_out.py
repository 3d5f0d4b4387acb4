"""What the scripts beside this file share: a little training, and files that show which of their last steps were made."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# Long enough that every stage is looked at several times.
STAGE_SECONDS = 0.2
_STAGES = os.open(f"{sys.argv[1]}/stages-{os.environ['RANK']}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def stage(name: str) -> None:
    """One step of the way out: it lasts a moment, and then leaves a line."""
    began_ns = time.time_ns()
    time.sleep(STAGE_SECONDS)
    os.write(_STAGES, f"{name} {began_ns} {time.time_ns()}\n".encode())


def train(steps: int = 4, data=None) -> DistributedDataParallel:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    go_on(model, steps, data)
    stage("training")
    return model


def go_on(model: DistributedDataParallel, steps: int, data=None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in data if data is not None else (torch.randn(8, 16) for _ in range(steps)):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
