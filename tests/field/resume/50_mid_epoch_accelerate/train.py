"""Accelerate, killed in the middle of an epoch; the order of the samples is printed."""

import os
import signal
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
set_seed(7)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
loader = DataLoader(TensorDataset(torch.arange(160, dtype=torch.float32)[:, None]), batch_size=4, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
step = 0
for epoch in range(3):
    for (x,) in loader:
        loss = model(x / 160).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        step += 1
        with open(f"seen_{os.environ.get('OUT', 'a')}_{accelerator.process_index}.txt", "a") as f:
            f.write(f"{step} {epoch} {[int(i) for i in x[:, 0]]} {loss.item():.9f} {scheduler.get_last_lr()[0]:.3e}\n")
        time.sleep(0.03)
        if step == 33 and accelerator.process_index == 1 and os.environ.get("KILL") and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
