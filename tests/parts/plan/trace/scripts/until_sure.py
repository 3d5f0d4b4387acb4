"""Adaptive computation: the same layer again until the halting score says enough, which no trace can know."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Ponder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layer = nn.GRUCell(width, width)
        self.halt = nn.Linear(width, 1)

    def forward(self, x):
        state, halted = torch.zeros_like(x), torch.zeros(x.shape[0], device=x.device)
        while halted.min() < 0.99:
            state = self.layer(x, state)
            halted = halted + torch.sigmoid(self.halt(state)).squeeze(-1)
        return state


model = Ponder().to(device)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    x = torch.randn(32, 64, device=device)
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
