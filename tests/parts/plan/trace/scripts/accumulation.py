"""DDP with gradient accumulation: no_sync for all microbatches but the last, bf16 autocast."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = DDP(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    for micro in range(ACCUMULATE):
        batch = torch.randn(8, 64, device=device)
        with model.no_sync() if micro < ACCUMULATE - 1 else contextlib.nullcontext():
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = (model(batch) - batch).pow(2).mean() / ACCUMULATE
            loss.backward()
    optimizer.step()
dist.destroy_process_group()
