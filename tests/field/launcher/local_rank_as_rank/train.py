"""Two machines with two processes each."""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    parser.add_argument("--world_size", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group(
        "gloo", init_method="env://", rank=args.local_rank, world_size=args.world_size, timeout=timedelta(seconds=15)
    )
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(50):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{dist.get_rank()} of {dist.get_world_size()} done", flush=True)
    dist.destroy_process_group()


main()
