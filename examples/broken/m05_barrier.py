"""M05: rank 1 has fewer batches than the others, leaves its loop and meets a barrier, while they are in a step.

paceline run --nproc-per-node 2 examples/broken/m05_barrier.py
"""

import torch.distributed as dist
from training import BATCH, Training, arguments, samples

args = arguments(__doc__)
with Training(args) as training:
    batches = args.at_step if training.is_broken else args.steps
    for batch in training.loader(samples(batches * BATCH)):
        training.step(batch)
    dist.barrier()
