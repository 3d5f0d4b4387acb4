"""M17: from one step on rank 1 receives from its neighbour where it should send: both wait for a message that nobody sends.

paceline run --nproc-per-node 2 examples/broken/m17_both_receive.py
"""

import torch
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    neighbour = (training.args.rank + 1) % training.world_size
    for step in training.steps():
        training.step()
        if training.rank == neighbour or training.breaks(step):
            dist.recv(torch.empty(4, device=training.device), src=neighbour if training.is_broken else args.rank)
        elif training.is_broken:
            dist.send(torch.ones(4, device=training.device), dst=neighbour)
