"""DDP over layers of several sizes, so that there are several buckets; one parameter is frozen."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = nn.Sequential(*(nn.Linear(a, b) for a, b in ((512, 2048), (2048, 2048), (2048, 3000), (3000, 64), (64, 10))))
model[0].bias.requires_grad_(False)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 512)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
