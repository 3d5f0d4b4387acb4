"""Each process looks for a free port for the group by itself."""

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


os.environ["MASTER_ADDR"] = "127.0.0.1"
os.environ["MASTER_PORT"] = str(free_port())
dist.init_process_group(
    "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]), timeout=timedelta(seconds=30)
)
dist.all_reduce(torch.ones(1))
print("done")
