"""C08: /dev/shm is too small for what the DataLoader's workers of rank 1 hand over. Needs root, for a /dev/shm of its own.

paceline run --nproc-per-node 2 examples/broken/c08_shared_memory.py
"""

import os
import sys

import torch
from torch.utils.data import Dataset
from training import RANK, Training, arguments

args = arguments(__doc__, shm_mib=4)
if __name__ == "__main__" and args.rank == RANK and "SMALL_SHM" not in os.environ:
    # The same process goes on in a mount namespace of its own, which ends with it.
    mount = f'mount -t tmpfs -o size={args.shm_mib}m tmpfs /dev/shm && exec "$@"'
    again = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, *sys.argv]
    os.execvpe(again[0], again, {**os.environ, "SMALL_SHM": "1"})


class Pictures(Dataset):
    def __len__(self) -> int:
        return args.steps * 16

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(32 + 32 * 2**10 * (args.rank == RANK)), torch.tensor(index % 8)


if __name__ == "__main__":
    with Training(args) as training:
        for inputs, labels in training.loader(Pictures(), num_workers=2):
            training.step((inputs[:, :32], labels))
