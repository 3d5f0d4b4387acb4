"""Trains a small regressor on the processors of one machine."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(16)  # as many as the machine had on which this was written


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(14)
    layers = [nn.Linear(384, 384), nn.GELU(), nn.Linear(384, 384), nn.GELU(), nn.Linear(384, 1)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(40 + rank)
    for step in range(300):
        x = torch.randn(192, 384)
        loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True).tanh())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


main()
