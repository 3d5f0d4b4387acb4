"""Accelerate: the main process alone waits for everyone, at the epoch's end."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
model = nn.Linear(8, 1)
data = DataLoader(TensorDataset(torch.randn(128, 8)), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, data = accelerator.prepare(model, optimizer, data)


def save(epoch):
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "m.pt")


for epoch in range(5):
    for (x,) in data:
        loss = model(x).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses = accelerator.gather(loss.detach().reshape(1))
    if epoch == 0:
        save(epoch)
    elif accelerator.is_main_process and epoch == 2:
        save(epoch)
print("done")
