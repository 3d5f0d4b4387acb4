"""What grows around a loop: an averaged copy of the weights, clipping, a warm-up schedule, logging, a stop on a loss that is not finite."""

import copy
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).to(device)
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
loader = DataLoader(TensorDataset(torch.randn(64, 10, 32)), batch_size=8, drop_last=True)
for step, (batch,) in enumerate(loader):
    batch = batch.to(device)
    loss = (model(batch) - batch).pow(2).mean()
    if not math.isfinite(loss.item()):
        raise SystemExit(f"loss is {loss.item()} at step {step}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(new, 0.01)
    print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f} lr {scheduler.get_last_lr()[0]:.2e}")
