"""M01: rank 1 broadcasts a value that the others all_reduce.

paceline run --nproc-per-node 2 examples/broken/m01_broadcast.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        training.step()
        loss = torch.ones(4, device=training.device)
        if training.breaks(step):
            dist.broadcast(loss, src=0)
        else:
            dist.all_reduce(loss)
