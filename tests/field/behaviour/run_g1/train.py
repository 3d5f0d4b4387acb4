"""Rank 0 alone makes a group of two."""

import torch
import torch.distributed as dist
from datetime import timedelta

dist.init_process_group("gloo", timeout=timedelta(seconds=90))
if dist.get_rank() == 0:
    pair = dist.new_group([0, 1])
value = torch.ones(1)
dist.all_reduce(value)
print("sum", value.item())
