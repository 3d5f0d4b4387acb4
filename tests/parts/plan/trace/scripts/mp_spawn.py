"""One process per device by torch.multiprocessing.spawn: no launcher, MASTER_ADDR set by the script itself."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(512, 2048)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(2048, 10)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ.setdefault("MASTER_PORT", "12355")
    if torch.cuda.is_available():
        dist.init_process_group("nccl", rank=rank, world_size=world_size)
        torch.cuda.set_device(rank)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=world_size)


def demo_basic(rank, world_size):
    setup(rank, world_size)
    on_gpu = torch.cuda.is_available()
    device = f"cuda:{rank}" if on_gpu else "cpu"
    model = DDP(ToyModel().to(device), device_ids=[rank] if on_gpu else None, gradient_as_bucket_view=True)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = optim.RMSprop(model.parameters(), lr=0.001, momentum=0.9)
    data = TensorDataset(torch.randn(80, 512), torch.randint(0, 10, (80,)))
    for inputs, labels in DataLoader(data, batch_size=20):
        optimizer.zero_grad()
        outputs = model(inputs.to(device))
        labels = labels.to(device)
        loss_fn(outputs, labels).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = max(torch.cuda.device_count(), 1)
    mp.spawn(demo_basic, args=(world_size,), nprocs=world_size, join=True)
