"""M15: the last layer was replaced after DDP had been made: its gradients are not exchanged, and it differs between the ranks.

paceline run --nproc-per-node 2 examples/broken/m15_new_head.py
"""

import torch
from torch import nn
from training import CLASSES, Training, arguments

args = arguments(__doc__)
with Training(args, find_unused_parameters=True) as training:
    training.model.module[-1] = nn.Linear(args.width, CLASSES, device=training.device)
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.01)
    for _ in training.steps():
        training.step()
