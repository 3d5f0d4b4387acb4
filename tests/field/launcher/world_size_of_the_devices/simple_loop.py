"""The example of a library: one process for each device of the machine."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def device_count():
    # Stands for torch.cuda.device_count() on a machine with four devices.
    return len(os.environ.get("MACHINE_DEVICES", "0,1,2,3").split(","))


def initialize():
    rank = int(os.environ["LOCAL_RANK"])
    world_size = device_count()
    dist.init_process_group("gloo", rank=rank, world_size=world_size, timeout=timedelta(seconds=15))


def main():
    initialize()
    torch.manual_seed(6)
    model = DistributedDataParallel(nn.Linear(5, 5))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        loss = model(torch.randn(2, 5)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("all steps done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
