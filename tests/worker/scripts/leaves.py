"""A rank that leaves in the way its argument says, after its own exit handler ran."""

import atexit
import sys

import torch

model = torch.nn.Linear(2, 2)
model(torch.ones(2)).sum().backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
atexit.register(print, "the script's own exit handler")


def deep(batch):
    raise RuntimeError(f"bad batch {batch}")


if sys.argv[1] == "raise":
    torch.utils.data.DataLoader([1, 2, 3], collate_fn=deep, batch_size=2)
    for _ in torch.utils.data.DataLoader([1, 2, 3], collate_fn=deep, batch_size=2):
        pass
elif sys.argv[1] == "interrupt":
    raise KeyboardInterrupt
elif sys.argv[1] != "end":
    sys.exit(int(sys.argv[1]))
