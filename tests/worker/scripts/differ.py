"""Two ranks that differ in one call, chosen by the first argument, after five in which they agree."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

# On a busy machine one rank may start long before the other.
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world_size, is_master=rank == 0)
# One call too many waits for ever.
dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=4))
odd = dist.get_rank() == 1


def reduce(value):
    dist.all_reduce(value)


def first():
    reduce(torch.ones(4))


def second():
    reduce(torch.full((4,), 2.0))


def differ(how):
    if how == "swapped":
        for call in (second, first) if odd else (first, second):
            call()
    elif how == "operation":
        dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM)
    elif how == "dtype":
        dist.all_reduce(torch.ones(4, dtype=torch.int32 if odd else torch.float32))
    elif how == "shape":
        dist.all_reduce(torch.ones(8 if odd else 4))
    elif how == "extra" and odd:
        dist.all_reduce(torch.ones(1))


for _ in range(5):
    first()
    second()
differ(sys.argv[1])
for _ in range(5):
    first()
    second()
print("done", flush=True)
os._exit(0)
