"""A loop that can go on from its last epoch; its first read of the epoch 2 is refused once, as by a busy server."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STATE = Path("state.pt")
REFUSED = Path("refused_once")


def read(epoch, rank):
    if epoch == 2 and rank == 1 and not REFUSED.exists():
        REFUSED.touch()
        raise ConnectionResetError("the store of samples has closed the connection")
    return torch.randn(8, 4)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(4, 4)
    first = 0
    if STATE.exists():
        saved = torch.load(STATE)
        model.load_state_dict(saved["model"])
        first = saved["epoch"] + 1
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    for epoch in range(first, 5):
        loss = parallel(read(epoch, rank)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.3)
        if rank == 0:
            torch.save({"model": model.state_dict(), "epoch": epoch}, STATE)
        dist.barrier()
    print(f"rank {rank}: all epochs, attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT')}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
