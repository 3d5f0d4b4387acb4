"""Rank 0 makes the directory, all ranks write their share into it."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(30):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()


def save_checkpoint(where):
    if rank == 0:
        time.sleep(1.0)  # the shared file system is slow
        os.makedirs(where, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(where, "model.pt"))
    torch.save(optimizer.state_dict(), os.path.join(where, f"optim_{rank}.pt"))


save_checkpoint("ckpt_last")
dist.barrier()
print("done", rank)
