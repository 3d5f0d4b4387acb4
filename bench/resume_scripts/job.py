"""What the three training scripts beside this file share: the model, the data, and one line for each step, as the benchmark reads it."""

import argparse
import os
import time

import torch
from torch import nn

FEATURES = 256


class Numbers(torch.utils.data.Dataset):
    """Random rows and what a fixed matrix makes of them."""

    def __init__(self, size=4096):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(size, FEATURES, generator=generator)
        self.y = self.x @ torch.randn(FEATURES, 8, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", required=True, help="a directory: the lines of each process that trains")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=900, help="900: one million parameters")
    parser.add_argument("--workers", type=int, default=0, help="of the data loader")
    parser.add_argument(
        "--checkpoint", default="", help="a file that is loaded if it is there, and written every 50 steps"
    )
    return parser.parse_args()


def network(width):
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))


class Lines:
    """Appends `pid generation step ranks time_ns loss`, by descriptor: no one who watches open files cuts a step that is made again."""

    def __init__(self, directory, name):
        self._descriptor = os.open(
            os.path.join(directory, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
        )

    def started(self, began_ns):
        """The script, which began then, has come to its loop: append `pid started nanoseconds`."""
        os.write(self._descriptor, f"{os.getpid()} started {time.time_ns() - began_ns}\n".encode())

    def step(self, generation, step, ranks, loss):
        line = f"{os.getpid()} {generation} {step} {ranks} {time.time_ns()} {loss!r}\n"
        os.write(self._descriptor, line.encode())


def load(path, model, optimizer):
    """The step of the checkpoint, 0 without one."""
    if not path or not os.path.exists(path):
        return 0
    kept = torch.load(path)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    return kept["step"]


def save(path, model, optimizer, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
    os.replace(path + ".new", path)
