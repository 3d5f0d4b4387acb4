"""No workers; the data set is opened anew at each epoch's start."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Opened(IterableDataset):
    def __iter__(self):
        time.sleep(3)
        for _ in range(200):
            yield torch.randn(32)


dist.init_process_group("gloo")
loader = DataLoader(Opened(), batch_size=4)
model = DistributedDataParallel(nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(8):
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        time.sleep(0.03)
dist.destroy_process_group()
