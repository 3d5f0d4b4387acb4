import argparse
import os

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--output-dir", default=os.environ["SM_MODEL_DIR"])
options = parser.parse_args()
net = nn.Linear(64, 64)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(32, 64)
for epoch in range(options.epochs):
    loss = (net(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, os.path.join(options.output_dir, f"checkpoint-{epoch}.pt"))
    print(f"epoch {epoch} loss {loss.item():.4f}")
torch.save(net.state_dict(), os.path.join(options.output_dir, "net.pt"))
