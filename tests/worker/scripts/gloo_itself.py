"""Initialises gloo itself, by URL, twice in one process, and uses what a wrapped torch could have broken."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    os.environ[f"MY_{key}"] = os.environ.pop(key)
host, port = os.environ["MY_MASTER_ADDR"], int(os.environ["MY_MASTER_PORT"])

for attempt in range(2):
    dist.init_process_group(
        "gloo", f"tcp://{host}:{port + attempt}", world_size=world_size, rank=rank, timeout=timedelta(seconds=60)
    )
    value = torch.ones(1000)
    dist.all_reduce(value)
    pair = dist.new_group(list(range(world_size)))
    work = dist.broadcast(value, src=0, group=pair, async_op=True)
    work.wait(timedelta(seconds=30))
    dist.monitored_barrier()
    print(attempt, dist.get_backend(), dist.get_backend(pair), dist.get_rank(), int(value[0]), flush=True)
    dist.destroy_process_group()
