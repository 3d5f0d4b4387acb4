"""A rank that never ends by itself: it says so after its fifth step."""

import time

import torch

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
while True:
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    step += 1
    if step == 5:
        print("five", flush=True)
        time.sleep(3600)
