"""Trains in the way of the library's releases from 1.4 on: a backend by import side effect, and torch's own DDP."""

import os

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group(backend="smddp")

local_rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)

torch.manual_seed(dist.get_rank())
model = DDP(
    torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device),
    device_ids=[local_rank],
)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    with model.no_sync():
        model(torch.randn(8, 32, device=device)).square().mean().backward()
    model(torch.randn(8, 32, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
weight = model.module[2].weight.detach()
largest, smallest = weight.clone(), weight.clone()
dist.all_reduce(largest, op=dist.ReduceOp.MAX)
dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
print("rank", dist.get_rank(), dist.get_backend(), "same weights", torch.equal(largest, smallest), flush=True)
