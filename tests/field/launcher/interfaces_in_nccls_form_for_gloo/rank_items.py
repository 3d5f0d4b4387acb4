"""Two replicas of a small ranking model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    model = DistributedDataParallel(nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(30):
        loss = model(torch.randn(16, 12)).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} has trained", flush=True)
    dist.destroy_process_group()


main()
