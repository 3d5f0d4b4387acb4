"""M06: rank 1 logs a value of its own, once, with a collective that the others never make; all that follow meet the wrong one.

paceline run --nproc-per-node 2 examples/broken/m06_shifted.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    metrics = dist.new_group()
    for step in training.steps():
        training.step()
        if training.breaks(step):
            dist.all_reduce(torch.ones(1, device=training.device), group=metrics)
        dist.all_reduce(torch.ones(1, dtype=torch.float64, device=training.device), group=metrics)
