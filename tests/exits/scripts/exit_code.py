"""Leaves with a code of its own."""

import atexit
import sys

import torch.distributed as dist
from way_out import last_stage, train

train()
dist.destroy_process_group()
atexit.register(last_stage, "handler")
sys.exit(3)
