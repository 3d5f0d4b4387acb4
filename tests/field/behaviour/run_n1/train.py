"""Rank 1 takes long before it joins (its own download); the store's time-out is short."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

if os.environ["RANK"] == "1":
    time.sleep(45)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
dist.all_reduce(torch.ones(1))
print("done")
