"""A rank with data-loader workers, started by fork and by spawn, and a plain forked child that steps."""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([float(index)])


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for method in ("fork", "spawn"):
        for batch in DataLoader(Numbers(), batch_size=4, num_workers=1, multiprocessing_context=method):
            model(batch).sum().backward()
            optimizer.step()
    child = os.fork()
    if child == 0:
        optimizer.step()
        # Not sys.exit: a process group has no threads in a forked child, and waits for them when Python ends.
        os._exit(7)
    print("child left with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
