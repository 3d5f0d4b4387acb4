"""Reads pre-trained weights at its start, always; has no resume at all."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
if not os.path.exists("backbone.pt") and dist.get_rank() == 0:
    torch.save(net.state_dict(), "backbone.pt")
dist.barrier()
net.load_state_dict(torch.load("backbone.pt"))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(300):
    x = torch.randn(32, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and dist.get_rank() == 0:
        print("step", step, "loss", round(float(loss), 3), flush=True)
    if step == 210 and dist.get_rank() == 1 and not os.path.exists("failed_once"):
        open("failed_once", "w").close()
        sys.exit(3)
dist.destroy_process_group()
