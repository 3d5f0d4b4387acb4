"""Its way depends on what the model computes: it keeps the samples that are hard, however many they are. Cannot be traced."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(64, 8, device=device)
    losses = model(x).squeeze(1).pow(2)
    hard = torch.nonzero(losses > losses.median()).squeeze(1)
    if len(hard) > 16:
        hard = hard[:16]
    optimizer.zero_grad()
    model(x[hard]).pow(2).mean().backward()
    optimizer.step()
