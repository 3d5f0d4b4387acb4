"""Starts its own processes: two workers with one dictionary of settings."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def worker(index, settings):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(settings["port"])
    dist.init_process_group("gloo", rank=index, world_size=settings["workers"])
    torch.manual_seed(settings["seed"])
    model = DistributedDataParallel(nn.Linear(settings["width"], 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
    for _ in range(20):
        loss = model(torch.randn(8, settings["width"])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


def main():
    settings = {"workers": 2, "port": 29653, "seed": 5, "width": 10, "lr": 0.1}
    mp.spawn(worker, nprocs=settings["workers"], args=(settings))
    print("both workers have ended", flush=True)


if __name__ == "__main__":
    main()
