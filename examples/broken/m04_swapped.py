"""M04: rank 1 exchanges its metrics in another order. Nothing fails; the loss is added to the accuracy.

paceline run --nproc-per-node 2 examples/broken/m04_swapped.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments


def reduce_loss() -> None:
    dist.all_reduce(torch.tensor([2.0], device=training.device))


def reduce_accuracy() -> None:
    dist.all_reduce(torch.tensor([0.5], device=training.device))


args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        training.step()
        metrics = [reduce_loss, reduce_accuracy]
        for reduce in reversed(metrics) if training.breaks(step) else metrics:
            reduce()
