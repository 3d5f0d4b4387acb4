"""Trains on shuffled clips; each rank has random numbers of its own."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STARTED = 1752480


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    clips = TensorDataset(torch.randn(480, 16), torch.randint(0, 3, (480,)))
    model = DistributedDataParallel(nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    own_seed = STARTED * rank
    random.seed(own_seed)
    torch.manual_seed(own_seed)
    sampler = DistributedSampler(clips, shuffle=True, drop_last=True, seed=own_seed)
    loader = DataLoader(clips, batch_size=8, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = 0.0
        for clip, label in loader:
            noisy = clip + 0.01 * torch.randn_like(clip)
            loss = nn.functional.cross_entropy(model(noisy), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            time.sleep(0.05)
        if rank == 0:
            print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)
    dist.destroy_process_group()


main()
