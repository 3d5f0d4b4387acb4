"""N03: a DataLoader worker of rank 1 never returns from one item.

paceline run --nproc-per-node 2 examples/broken/n03_loader_stuck.py
"""

import time
from argparse import Namespace

from torch import Tensor
from torch.utils.data import Dataset
from training import BATCH, RANK, Training, arguments, samples


class Images(Dataset):
    """Made-up samples, one of which blocks whoever reads it on the broken rank."""

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self.data = samples(args.steps * BATCH, seed=RANK)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.args.rank == RANK and index == self.args.at_step * BATCH:
            time.sleep(self.args.seconds)
        return self.data[index]


args = arguments(__doc__, seconds=3600, workers=2)
if __name__ == "__main__":
    with Training(args) as training:
        for _, batch in zip(training.steps(), training.loader(Images(args), num_workers=args.workers), strict=False):
            training.step(batch)
