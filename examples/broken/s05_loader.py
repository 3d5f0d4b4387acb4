"""S05: the samples of rank 1 (of every rank: --rank -1) take long to make, and its steps wait for them.

paceline run --nproc-per-node 2 examples/broken/s05_loader.py --steps 1000
"""

import time

from torch import Tensor
from torch.utils.data import Dataset
from training import BATCH, Training, arguments, samples

args = arguments(__doc__, ms=40.0, workers=0)


class Slow(Dataset):
    """Samples, each of which takes its share of `--ms` a batch."""

    def __init__(self, slow: bool) -> None:
        self.samples, self.slow = samples(args.steps * BATCH), slow

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if self.slow and index >= args.at_step * BATCH:
            time.sleep(args.ms / 1000 / BATCH)
        return self.samples[index]


if __name__ == "__main__":
    with Training(args) as training:
        loader = training.loader(Slow(training.is_broken or args.rank == -1), num_workers=args.workers)
        for _, batch in zip(training.steps(), loader, strict=False):
            training.step(batch)
