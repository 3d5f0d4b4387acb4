import os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = int(os.environ.get("STEPS", "40"))
for step in range(steps):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if step == 20:
        print("step 20 of rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
print("done rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
