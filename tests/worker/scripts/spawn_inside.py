"""mp.spawn inside the script, as PyTorch's tutorials do without a launcher: the script is no rank, its children are."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank, world_size, port, fails):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DDP(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()
    if fails and rank == 1:
        raise ValueError("the child's own reason")


if __name__ == "__main__":
    if "no-tuple" in sys.argv:
        mp.spawn(train, args=("abcdef"), nprocs=1)
    mp.spawn(train, args=(2, os.environ["MASTER_PORT"], "fail" in sys.argv), nprocs=2)
