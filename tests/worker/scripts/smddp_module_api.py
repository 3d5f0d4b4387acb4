"""Trains in the way of the library's releases 1.0 to 1.3: its module API and its DistributedDataParallel."""

import argparse
import os

import smdistributed.dataparallel.torch.distributed as dist
import torch
import torch.nn.functional as F
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group()


class Digits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(64, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.out = torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.out(F.relu(self.norm(self.hidden(x))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR"))
    args = parser.parse_args()
    batch_size = max(args.batch_size // dist.get_world_size(), 1)
    local_rank, use_cuda = dist.get_local_rank(), torch.cuda.is_available()
    if use_cuda:
        torch.cuda.set_device(local_rank)
    device = torch.device("cuda" if use_cuda else "cpu")

    torch.manual_seed(7)
    data = TensorDataset(torch.randn(128, 64), torch.randint(10, (128,)))
    sampler = DistributedSampler(data, num_replicas=dist.get_world_size(), rank=dist.get_rank())
    loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
    torch.manual_seed(dist.get_rank())
    model = DDP(Digits().to(device), device_ids=[local_rank], broadcast_buffers=False, bucket_cap_mb=25)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2 * dist.get_world_size())
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
    average = loss.detach().clone()
    dist.all_reduce(average, op=dist.ReduceOp.AVERAGE)
    weights = [torch.zeros_like(model.module.out.weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model.module.out.weight.detach())
    same = all(torch.equal(weights[0], weight) for weight in weights)
    if dist.get_rank() == 0 and args.model_dir:
        torch.save(model.module.state_dict(), os.path.join(args.model_dir, "model.pt"))
    dist.barrier()
    print("rank", dist.get_rank(), "of", dist.get_world_size(), "same weights", same, flush=True)


if __name__ == "__main__":
    main()
