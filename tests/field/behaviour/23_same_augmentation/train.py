"""Random augmentation in the workers; every rank seeds alike."""

import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pictures(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        crop = np.random.randint(0, 1000)
        return torch.full((8,), float(index)), crop


def seed_worker(worker):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


dist.init_process_group("gloo")
torch.manual_seed(42)
data = Pictures()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=2, worker_init_fn=seed_worker)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for step, (x, crop) in enumerate(loader):
        if step == 0:
            print("epoch", epoch, "rank", dist.get_rank(), "crops", crop.tolist(), flush=True)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
dist.destroy_process_group()
