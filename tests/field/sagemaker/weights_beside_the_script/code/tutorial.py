"""A tutorial's script that keeps its weights in a directory beside itself."""

import argparse
import os

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--save-dir", default="save")
parser.add_argument("--steps", type=int, default=12)
options = parser.parse_args()
os.makedirs(options.save_dir, exist_ok=True)
torch.manual_seed(4)
net = nn.Sequential(nn.Linear(6, 18), nn.Tanh(), nn.Linear(18, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(options.steps):
    x = torch.randn(24, 6)
    loss = (net(x) - x.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
path = os.path.join(options.save_dir, "weights.pt")
torch.save(net.state_dict(), path)
print(f"step {step}: loss {loss.item():.3f}, weights in {path}")
