"""Each rank makes only the group that it belongs to."""

import torch
import torch.distributed as dist
from datetime import timedelta

dist.init_process_group("gloo", timeout=timedelta(seconds=90))
rank = dist.get_rank()
mine = [0, 3] if rank in (0, 3) else [1, 2]
group = dist.new_group(mine)
value = torch.tensor([float(rank)])
dist.all_reduce(value, group=group)
print("rank", rank, "sum", value.item(), "should be", sum(mine), flush=True)
assert value.item() == sum(mine)
dist.barrier()
