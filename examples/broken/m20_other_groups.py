"""M20: rank 1 makes a process group for itself alone before the group of all ranks: new_group never meets.

paceline run --nproc-per-node 2 examples/broken/m20_other_groups.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        training.step()
        if training.breaks(step):
            dist.new_group([dist.get_rank()])
        if step == args.at_step:
            group = dist.new_group()
            dist.all_reduce(torch.ones(1, device=training.device), group=group)
