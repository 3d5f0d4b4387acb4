"""Two ranks sum a tensor: the last step of an installation of torch."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4)
dist.all_reduce(total)
assert total.tolist() == [2.0] * 4, total
dist.destroy_process_group()
