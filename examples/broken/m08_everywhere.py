"""M08: no rank uses one layer of the model, and DDP was made without find_unused_parameters; the second step fails on all ranks.

paceline run --nproc-per-node 2 examples/broken/m08_everywhere.py
"""

from torch import Tensor, nn
from training import CLASSES, FEATURES, Training, arguments


class WithSpareHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)
        self.spare = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs)


args = arguments(__doc__)
with Training(args, WithSpareHead) as training:
    for _ in training.steps():
        training.step()
