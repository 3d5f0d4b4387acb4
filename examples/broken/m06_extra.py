"""M06: rank 1 alone makes an all_reduce, which meets an exchange of gradients of the others.

paceline run --nproc-per-node 2 examples/broken/m06_extra.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        training.step()
        if training.breaks(step):
            dist.all_reduce(torch.ones(1, device=training.device))
