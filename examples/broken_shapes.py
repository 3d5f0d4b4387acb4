"""Broken on purpose: rank 0 builds a batch of the wrong width. See how a failure is reported.

paceline run --nproc-per-node 2 examples/broken_shapes.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
width = 7 if dist.get_rank() == 0 else 8
batch, layer = torch.ones(4, width), torch.nn.Linear(8, 2)
for _ in range(3):
    loss = layer(batch).sum()
    dist.all_reduce(loss)
dist.destroy_process_group()
