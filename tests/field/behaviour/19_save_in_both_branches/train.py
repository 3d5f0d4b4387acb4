"""The branch without DDP saves too: ranks above 0 take it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    dist.init_process_group("gloo")
model = nn.Linear(8, 8)
model = DistributedDataParallel(model) if ddp else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for step in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    if ddp and int(os.environ["LOCAL_RANK"]) == 0:
        torch.save(model.module.state_dict(), "best.pth")
    else:
        torch.save(model.state_dict(), "best.pth")
print("done")
