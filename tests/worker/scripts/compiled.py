"""torch.compile over DDP, and over an optimizer; prints what torch.compile counted."""

import json
import sys

import torch
import torch._dynamo.utils
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)))
compiled = torch.compile(model, backend=sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    for batch in DataLoader(torch.randn(8, 8), batch_size=4):
        optimizer.zero_grad()
        compiled(batch).sum().backward()
        optimizer.step()
after_ddp = {kind: sum(found.values()) for kind, found in torch._dynamo.utils.counters.items()}
torch._dynamo.reset()
torch._dynamo.utils.counters.clear()

other = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="aot_eager")
def update():
    other.step()


for _ in range(3):
    model(torch.randn(4, 8)).sum().backward()
    update()
after_optimizer = {kind: sum(found.values()) for kind, found in torch._dynamo.utils.counters.items()}
print(json.dumps([after_ddp, after_optimizer]))
dist.destroy_process_group()
