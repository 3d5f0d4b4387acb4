"""Has exit handlers, of the interpreter and of its threads, and one that raises."""

import atexit
import threading

import torch.distributed as dist
from way_out import stage, train


def fails() -> None:
    raise RuntimeError("this exit handler fails on purpose")


atexit.register(stage, "first handler")
train()
atexit.register(fails)
atexit.register(dist.destroy_process_group)
atexit.register(stage, "second handler")
threading._register_atexit(stage, "handler of threads")
