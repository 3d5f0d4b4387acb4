"""M04: rank 1 exchanges its metrics in a thread beside the training: which exchange comes first is chance.

paceline run --nproc-per-node 2 examples/broken/m04_thread.py
"""

import threading

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
        if training.is_broken and step >= args.at_step:
            beside = threading.Timer(0.002, reduce_loss)
            beside.start()
            reduce_accuracy()
            beside.join()
        else:
            reduce_loss()
            reduce_accuracy()
