"""A discriminator that sees fakes and reals in two forward passes before one backward pass."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
critic = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1)))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(20):
    real, fake = torch.randn(8, 16) + 1, torch.randn(8, 16)
    loss = critic(fake).mean() - critic(real).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done", dist.get_rank(), float(loss))
dist.destroy_process_group()
