"""Decoy: rank 0 evaluates for 20 s while the others wait at a barrier. Long, and nothing hangs.

paceline run --nproc-per-node 2 examples/broken/decoy_evaluation.py --rank 0
"""

import time

import torch
import torch.distributed as dist
from training import Training, arguments, network


@torch.no_grad()
def evaluate(seconds: float) -> float:
    """The mean output over as many batches as fit into the time."""
    model, total, batches = network(hidden=256), 0.0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        total += model(torch.randn(64, 32)).mean().item()
        batches += 1
    return total / max(1, batches)


args = arguments(__doc__, seconds=20)
with Training(args) as training:
    for step in training.steps():
        if step == args.at_step:
            if training.is_broken:
                evaluate(args.seconds)
            dist.barrier()
        training.step()
