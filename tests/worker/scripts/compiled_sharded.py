"""torch.compile over a model that FullyShardedDataParallel or fully_shard splits; rank 0 prints what torch.compile counted."""

import json
import sys

import torch
import torch._dynamo.utils
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
if sys.argv[1] == "fsdp1":
    model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
else:
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    compiled(torch.randn(4, 8)).sum().backward()
    optimizer.step()
counters = torch._dynamo.utils.counters
if dist.get_rank() == 0:
    print(json.dumps([sum(counters["graph_break"].values()), dict(counters["stats"])]))
dist.destroy_process_group()
