"""Has work in an executor that nobody waits for but the interpreter."""

from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist
from way_out import stage, train

train()
executor = ThreadPoolExecutor(1)
executor.submit(stage, "first future")
executor.submit(stage, "second future")
dist.destroy_process_group()
