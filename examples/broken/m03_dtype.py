"""M03: rank 1 counts in int32 what the others count in float32. Nothing fails; the numbers are wrong.

paceline run --nproc-per-node 2 examples/broken/m03_dtype.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        training.step()
        kind = torch.int32 if training.breaks(step) else torch.float32
        correct = torch.ones(4, dtype=kind, device=training.device)
        dist.all_reduce(correct)
