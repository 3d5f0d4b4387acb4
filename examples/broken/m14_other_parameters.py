"""M14: the optimizer was made before the model was replaced by a copy: its steps change parameters that nobody uses.

paceline run --nproc-per-node 2 examples/broken/m14_other_parameters.py
"""

import copy

import torch
from training import Training, arguments, network

args = arguments(__doc__)
model = network(args.width)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Training(args, lambda: copy.deepcopy(model)) as training:
    training.optimizer = optimizer
    for _ in training.steps():
        training.step()
