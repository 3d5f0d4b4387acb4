"""M05: rank 1 has fewer batches than the others and begins its evaluation, whose sum meets an exchange of gradients of theirs.

paceline run --nproc-per-node 2 examples/broken/m05_evaluates.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    batches = [training.batch() for _ in range(args.at_step if training.is_broken else args.steps)]
    for batch in batches:
        training.step(batch)
    with torch.no_grad():
        inputs, labels = training.batch()
        right = (training.model.module(inputs).argmax(1) == labels).sum()
    dist.all_reduce(right)
