"""C12: a DataLoader worker of rank 1 is killed in the middle of the training.

paceline run --nproc-per-node 2 examples/broken/c12_loader_worker.py
"""

import os
import signal

from torch import Tensor
from torch.utils.data import Dataset
from training import BATCH, RANK, Training, arguments, samples

args = arguments(__doc__)


class Deadly(Dataset):
    def __init__(self) -> None:
        self.samples = samples(args.steps * BATCH)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if args.rank == RANK and index == args.at_step * BATCH:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.samples[index]


if __name__ == "__main__":
    with Training(args) as training:
        for batch in training.loader(Deadly(), num_workers=1):
            training.step(batch)
