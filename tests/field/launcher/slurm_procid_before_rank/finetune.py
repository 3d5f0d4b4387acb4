"""A fine-tuning whose first process makes the directory of this version."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HERE = Path("experiments") / "version_0"


def global_rank():
    for name in ("SLURM_PROCID", "RANK", "LOCAL_RANK"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def is_first():
    return global_rank() == 0


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    model = DistributedDataParallel(nn.Linear(7, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if is_first():
        HERE.mkdir(parents=True)
    dist.barrier()
    for step in range(60):
        loss = model(torch.randn(8, 7)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if is_first() and step % 20 == 19:
            torch.save(model.module.state_dict(), HERE / f"step_{step}.pt")
    dist.destroy_process_group()


main()
