"""A rank that prints what it has loaded."""

import json
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(60, 2)), batch_size=2):
    model(batch).sum().backward()
    optimizer.step()
print(json.dumps(sorted(sys.modules)))
dist.destroy_process_group()
