"""Trains a small network; rank 0 looks at the held-out data after each epoch."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def held_out_loss(model, data):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in data:
            total += nn.functional.mse_loss(model(x), y).item()
    model.train()
    return total / len(data)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17)
    body = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))
    model = DistributedDataParallel(body)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    held_out = [(x, x.sum(1, keepdim=True)) for x in torch.randn(6, 32, 10)]
    torch.manual_seed(60 + rank)
    for epoch in range(4):
        for _ in range(60):
            x = torch.randn(16, 10)
            loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)
        if rank == 0:
            print(f"epoch {epoch} held-out {held_out_loss(model, held_out):.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


main()
