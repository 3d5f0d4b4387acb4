"""Leaves with a code of its own."""

import atexit
import sys

import torch.distributed as dist
from way_out import stage, train

train()
dist.destroy_process_group()
atexit.register(stage, "handler")
sys.exit(3)
