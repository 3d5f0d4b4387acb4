"""C13: rank 0 writes a checkpoint for longer than the process group's timeout; the others give up.

paceline run --nproc-per-node 2 examples/broken/c13_outlasted.py --rank 0 --timeout-seconds 6
"""

import os
import time

import torch
import torch.distributed as dist
from training import Training, arguments


class SlowFile:
    """A file on a slow disk: each write takes as long as it takes."""

    def __init__(self, path: str, seconds: float) -> None:
        self.descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        self.end = time.monotonic() + seconds

    def write(self, data: bytes) -> int:
        while time.monotonic() < self.end:
            os.pwrite(self.descriptor, b"\0" * 65536, 1 << 20)
            os.fsync(self.descriptor)
        return os.write(self.descriptor, data)

    def flush(self) -> None:
        os.fsync(self.descriptor)


args = arguments(__doc__, seconds=15)
with Training(args) as training:
    for step in training.steps():
        training.step()
        if step == args.at_step:
            if training.is_broken:
                torch.save(training.model.state_dict(), SlowFile("checkpoint.pt", args.seconds))
            dist.barrier()
