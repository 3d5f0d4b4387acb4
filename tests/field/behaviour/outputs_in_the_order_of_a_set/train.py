"""A force field whose atoms are divided among the ranks; what it computes is put together after each step."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PER_GRAPH = {"energy", "stress", "virial", "dipole", "volume"}
PER_ATOM = {"forces", "charges", "spins", "strain", "hardness"}
SUPPORTED = PER_GRAPH | PER_ATOM


class Field(nn.Module):
    def __init__(self, active):
        super().__init__()
        self.active = active & SUPPORTED
        self.net = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 4))

    def forward(self, atoms):
        base = self.net(atoms).mean(0)
        return {name: base * (1 + len(name)) for name in self.active}


def put_together(outputs):
    whole = {}
    for name, value in outputs.items():
        value = value.detach().clone()
        if name in PER_GRAPH:
            dist.all_reduce(value)
            whole[name] = value
        else:
            parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, value)
            whole[name] = torch.cat(parts)
    return whole


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(31)
    model = DistributedDataParallel(Field(set(SUPPORTED)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(500 + dist.get_rank())
    for step in range(200):
        outputs = model(torch.randn(40, 6))
        loss = sum(value.square().sum() for value in outputs.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            whole = put_together(outputs)
            if dist.get_rank() == 0:
                print(f"step {step} energy {whole['energy'].sum().item():.4f}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


main()
