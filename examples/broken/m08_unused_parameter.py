"""M08: from one step on the loss of rank 1 does not use the first layer, so its gradients never come and DDP waits for them.

paceline run --nproc-per-node 2 examples/broken/m08_unused_parameter.py
"""

from torch import Tensor, nn
from training import CLASSES, FEATURES, Training, arguments


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, FEATURES))
        self.last = nn.Linear(FEATURES, CLASSES)
        self.shallow = False

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(inputs if self.shallow else self.deep(inputs))


args = arguments(__doc__)
with Training(args, Branching) as training:
    for step in training.steps():
        training.model.module.shallow = training.is_broken and step >= args.at_step
        training.step()
