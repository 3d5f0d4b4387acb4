"""M03: rank 1 takes the maximum of a value of which the others take the sum. Nothing fails; the numbers are wrong.

paceline run --nproc-per-node 2 examples/broken/m03_max.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        training.step()
        loss = torch.tensor([1.0 + training.rank], device=training.device)
        dist.all_reduce(loss, op=dist.ReduceOp.MAX if training.breaks(step) else dist.ReduceOp.SUM)
