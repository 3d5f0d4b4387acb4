"""M12: the script was started once for each rank and has no DDP: every rank trains a model of its own.

paceline run --nproc-per-node 2 examples/broken/m12_alone.py
"""

import time

import torch
from torch import nn
from training import BATCH, CLASSES, FEATURES, arguments, network

args = arguments(__doc__)
torch.set_num_threads(1)
model = network(args.width)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(args.steps):
    time.sleep(args.step_ms / 1000)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(BATCH, FEATURES)), torch.randint(CLASSES, (BATCH,))).backward()
    optimizer.step()
