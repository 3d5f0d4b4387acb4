"""A script without a function: everything is at the level of the module."""

import os
import random
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from fingerprint import digest, draws, pause
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

out = sys.argv[sys.argv.index("--out") + 1]
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
np.random.seed(rank)
random.seed(rank)

x = torch.randn(480, 16)
y = torch.sin(x.sum(1, keepdim=True))
dataset = TensorDataset(x, y, torch.arange(len(x)))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=8, sampler=sampler)

model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(48, 1))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)

log = open(os.path.join(out, f"rank{rank}.log"), "a")  # noqa: SIM115
print(f"begin parameters {sum(p.numel() for p in model.parameters())} batches {len(loader)}", file=log, flush=True)

step = 0
total_loss = 0.0
for epoch in range(3):
    sampler.set_epoch(epoch)
    running = 0.0
    for inputs, targets, index in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        step += 1
        running += loss.item()
        total_loss += loss.item()
        lr = optimizer.param_groups[0]["lr"]
        print(
            f"step {step} {epoch} {loss.item()!r} {lr!r} {running!r} {index.tolist()} {draws()}", file=log, flush=True
        )
        pause()
    scheduler.step()
    print(f"epoch {epoch} {running / len(loader)!r} {total_loss!r}", file=log, flush=True)

print("final", digest(model.state_dict()), digest(optimizer.state_dict()), repr(total_loss), file=log, flush=True)
log.close()
dist.destroy_process_group()
