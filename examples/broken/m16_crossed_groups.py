"""M16: rank 1 enters two process groups in the other order: the ranks wait for each other, each in another group.

paceline run --nproc-per-node 2 examples/broken/m16_crossed_groups.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    groups = [dist.new_group(), dist.new_group()]
    for step in training.steps():
        training.step()
        for group in reversed(groups) if training.breaks(step) else groups:
            dist.all_reduce(torch.ones(1, device=training.device), group=group)
