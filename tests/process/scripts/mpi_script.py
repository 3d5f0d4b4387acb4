"""Trains over MPI, as a script for a torch that was built with MPI does: mpirun says who is who."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("mpi")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    if len(sys.argv) > 1 and step == 3 and dist.get_rank() == 1:
        raise ValueError(sys.argv[1])
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
# In one piece: mpirun mixes what its ranks write.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} {dist.get_backend()}\n")
dist.destroy_process_group()
