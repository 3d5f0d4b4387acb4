"""Trains in steps, keeps a state every 20 steps, and goes on from the newest one."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

KEPT = "kept"


def newest():
    names = [name for name in os.listdir(KEPT) if name.startswith("step_")]
    return os.path.join(KEPT, sorted(names)[-1]) if names else None


def main():
    dist.init_process_group("gloo")
    os.makedirs(KEPT, exist_ok=True)
    torch.manual_seed(9)
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    first = 1
    path = newest()
    if path is not None:
        state = torch.load(os.path.join(path, "state.pt"))
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    model = DistributedDataParallel(net)
    torch.manual_seed(300 + dist.get_rank())
    for step in range(first, 181):
        x = torch.randn(16, 12)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if step % 20 == 0:
            if dist.get_rank() == 0:
                where = os.path.join(KEPT, f"step_{step}")
                os.makedirs(where, exist_ok=True)
                state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, os.path.join(where, "state.pt"))
            dist.barrier()
        if step == 130 and first == 1 and dist.get_rank() == 1:
            sys.exit(3)  # the host is taken away
    if dist.get_rank() == 0:
        print(f"trained, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main()
