"""DDP and calls of its own over the backend `paceline`: what the script issues, what C++ issues, and a group of some ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("paceline")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
pair = dist.new_group([0, 1])
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    metric = torch.ones(5)
    dist.all_reduce(metric)
work = dist.all_reduce(torch.ones(3), group=pair, async_op=True)
work.wait()
dist.send(torch.ones(2), 1) if rank == 0 else dist.recv(torch.ones(2), 0)
dist.barrier()
dist.destroy_process_group()
