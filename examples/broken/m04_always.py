"""M04: rank 1 exchanges its metrics in another order at every step, from the first one on: no step shows a change. Nothing fails.

paceline run --nproc-per-node 2 examples/broken/m04_always.py
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
    metrics = [reduce_accuracy, reduce_loss] if training.is_broken else [reduce_loss, reduce_accuracy]
    for _ in training.steps():
        training.step()
        for reduce in metrics:
            reduce()
