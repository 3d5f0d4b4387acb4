"""M08: from one step on rank 1 freezes its first layer, after DDP has been made: DDP still waits for the gradients of that layer.

paceline run --nproc-per-node 2 examples/broken/m08_frozen.py
"""

from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            training.model.module[0].requires_grad_(False)
        training.step()
