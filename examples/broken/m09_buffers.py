"""M09: a buffer of rank 1 has another size than on the other ranks; the parameters are the same.

paceline run --nproc-per-node 2 examples/broken/m09_buffers.py
"""

import torch
from torch import nn
from training import RANK, Training, arguments, broken, network

args = arguments(__doc__)


def with_buffer() -> nn.Module:
    model = network(args.width)
    is_broken = args.rank == RANK
    if is_broken:
        broken()
    model.register_buffer("positions", torch.zeros(96 if is_broken else 64))
    return model


with Training(args, with_buffer) as training:
    for _ in training.steps():
        training.step()
