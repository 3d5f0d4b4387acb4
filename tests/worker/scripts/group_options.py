"""The options of groups made by name, by default and by new_group, as the script sees them."""

from datetime import timedelta

import torch
import torch.distributed as dist


def told(group):
    options = group._get_backend(torch.device("cpu")).options
    return [
        (name, value if isinstance(value, (str, int, list, timedelta)) else type(value).__name__)
        for name in sorted(dir(options))
        if not name.startswith("__") and not callable(value := getattr(options, name)) and name != "_devices"
    ]


dist.init_process_group("gloo", timeout=timedelta(seconds=77))
pair = dist.new_group([0, 1], timeout=timedelta(seconds=55))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
dist.all_reduce(torch.ones(1), group=pair)
dist.distributed_c10d._set_pg_timeout(timedelta(seconds=33), pair)
print(told(dist.group.WORLD), told(pair), flush=True)
dist.destroy_process_group()
