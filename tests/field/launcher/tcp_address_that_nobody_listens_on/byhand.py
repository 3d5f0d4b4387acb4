"""A script that was started by hand, once for each process, before it met a launcher."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ADDRESS = "tcp://127.0.0.1:29741"


def connect():
    rank = int(os.environ.get("RANK", "0"))
    size = int(os.environ.get("WORLD_SIZE", "1"))
    dist.init_process_group("gloo", init_method=ADDRESS, rank=rank, world_size=size, timeout=timedelta(seconds=12))


def main():
    connect()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(6, 6))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(25):
        loss = (model(torch.ones(4, 6)) - 1).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{dist.get_rank()} of {dist.get_world_size()}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
