"""Trains a small regressor and reports the loss on held-out frames."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed):
    # Augmentation and dropout are to differ on each rank.
    torch.manual_seed(seed + 12345 * dist.get_rank())


def frames():
    source = torch.Generator().manual_seed(77)
    x = torch.randn(500, 20, generator=source)
    data = TensorDataset(x, x.sum(1, keepdim=True).sin())
    return random_split(data, [450, 50])


def main():
    dist.init_process_group("gloo")
    set_seed(1234)
    train, held_out = frames()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    sampler = DistributedSampler(train, seed=1234)
    loader = DataLoader(train, batch_size=9, sampler=sampler)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        model.eval()
        with torch.no_grad():
            x, y = held_out[:]
            error = nn.functional.mse_loss(model.module(x), y)
        dist.all_reduce(error)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} held-out {error.item() / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


main()
