"""M02: rank 1 hands eight numbers to an all_reduce in which the others have four.

paceline run --nproc-per-node 2 examples/broken/m02_shapes.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        training.step()
        metrics = torch.ones(8 if training.breaks(step) else 4, device=training.device)
        dist.all_reduce(metrics)
