"""Leaves its process group to Python, and its checkpoint to a thread that is still writing when the script is done."""

import sys
import threading

import torch
import torch.distributed as dist
from way_out import stage, train


def write() -> None:
    stage("writer thread")
    torch.save(state, f"{sys.argv[1]}/checkpoint-{dist.get_rank()}")
    stage("checkpoint")


state = train().state_dict()
threading.Thread(target=write).start()
