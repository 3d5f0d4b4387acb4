"""M15: the first layer is frozen when DDP is made, and unfrozen later: its gradients are not exchanged.

paceline run --nproc-per-node 2 examples/broken/m15_unfrozen.py
"""

from torch import nn
from training import Training, arguments, network

args = arguments(__doc__)


def frozen() -> nn.Module:
    model = network(args.width)
    model[0].requires_grad_(False)
    return model


with Training(args, frozen) as training:
    for step in training.steps():
        if step == args.at_step:
            training.model.module[0].requires_grad_(True)
        training.step()
