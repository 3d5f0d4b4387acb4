"""PyTorch's "Getting Started with Distributed Data Parallel", in the form that torchrun starts."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = TensorDataset(torch.randn(200, 10), torch.randn(200, 5))
    loader = DataLoader(data, batch_size=5, sampler=DistributedSampler(data), num_workers=0)
    ddp_model = DDP(ToyModel())
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(ddp_model(x), y).backward()
        optimizer.step()
    print(f"rank {rank} done, backend {dist.get_backend()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
