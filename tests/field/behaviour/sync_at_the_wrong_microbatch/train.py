"""Accumulates the gradients of four microbatches before each step of the optimizer."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ACCUMULATE = 4


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(40)
    x = torch.randn(1280, 24)
    data = TensorDataset(x, (x[:, :4].sum(1) > 0).long())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for index, (inputs, labels) in enumerate(loader):
            quiet = model.no_sync() if index % ACCUMULATE else contextlib.nullcontext()
            with quiet:
                loss = nn.functional.cross_entropy(model(inputs), labels) / ACCUMULATE
                loss.backward()
            if (index + 1) % ACCUMULATE == 0:
                optimizer.step()
                optimizer.zero_grad()
            time.sleep(0.025)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item() * ACCUMULATE:.4f}", flush=True)
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


main()
