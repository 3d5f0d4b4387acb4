"""S11: every rank sends its gradients to rank 0, which averages them and sends them back. Needs root; starts its hosts itself.

python examples/broken/s11_hot_spot.py --steps 600
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector
from training import Training, arguments, network

args = arguments(__doc__, hosts=3, rate_mbit=1000.0)
if "RANK" not in os.environ:
    from several_hosts import start

    sys.exit(start(args.hosts, lambda hosts: [hosts.shape(i, rate_mbit=args.rate_mbit) for i in range(args.hosts)]))

with Training(args, lambda: network(hidden=512, layers=4)) as training:
    parameters = list(training.model.parameters())
    for _ in training.steps():
        with training.model.no_sync():
            training.backward(training.loss())
        mine = parameters_to_vector([parameter.grad for parameter in parameters])
        all_of_them = [torch.empty_like(mine) for _ in range(training.world_size)] if training.rank == 0 else None
        dist.gather(mine, all_of_them, dst=0)
        mean = torch.stack(all_of_them).mean(0) if all_of_them else mine
        dist.broadcast(mean, src=0)
        torch.nn.utils.vector_to_parameters(mean, [parameter.grad for parameter in parameters])
        training.update()
