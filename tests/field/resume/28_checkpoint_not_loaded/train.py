"""Resume: the checkpoint's names begin with module., the model's do not; strict=False hides it."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
first = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")
    net.load_state_dict(saved["model"], strict=False)
    first = saved["step"] + 1
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(first, 300):
    x = torch.randn(32, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == first:
        if dist.get_rank() == 0:
            print("step", step, "loss", round(float(loss), 3), flush=True)
            torch.save({"model": model.state_dict(), "step": step}, "last.pt")
        dist.barrier()
    if step == 210 and first == 0 and dist.get_rank() == 1:
        sys.exit(3)
dist.destroy_process_group()
