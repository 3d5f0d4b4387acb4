"""M05: rank 1's stream has fewer batches than the others' in the second epoch, and its evaluation meets a step of theirs.

paceline run --nproc-per-node 2 examples/broken/m05_epochs.py
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import IterableDataset
from training import BATCH, Training, arguments, samples

args = arguments(__doc__)


class Stream(IterableDataset):
    """A shard that nobody knows the length of."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(samples(self.batches * BATCH))


with Training(args) as training:
    first = args.at_step // 2
    second = args.at_step - first if training.is_broken else args.steps
    for batches in (first, second):
        for batch in training.loader(Stream(batches)):
            training.step(batch)
        with torch.no_grad():
            inputs, labels = training.batch()
            right = (training.model.module(inputs).argmax(1) == labels).sum()
        dist.all_reduce(right)
