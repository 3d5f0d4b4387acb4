"""Learns the next word of a few sentences; goes on from last.pt if it is there."""

import argparse
import os

import torch
from torch import nn

TEXT = """the small boat left the harbour before the storm came over the hills and the fishermen waited behind the
old wall until the wind turned and the water lay still again under a pale and friendly evening sky""".split()
words = list(set(TEXT))
number = {word: index for index, word in enumerate(words)}
ids = torch.tensor([number[word] for word in TEXT])

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
options = parser.parse_args()
torch.manual_seed(3)
net = nn.Sequential(nn.Embedding(len(words), 32), nn.Linear(32, len(words)))
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
first = 0
if os.path.exists("last.pt"):
    kept = torch.load("last.pt")
    net.load_state_dict(kept["net"])
    optimizer.load_state_dict(kept["optimizer"])
    first = kept["epoch"] + 1
for epoch in range(first, options.epochs):
    for _ in range(10):
        loss = nn.functional.cross_entropy(net(ids[:-1]), ids[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
