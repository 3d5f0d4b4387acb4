"""Accelerate around a loop that is the script's own."""

import argparse
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from fingerprint import digest, draws, pause
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(42)
    x = torch.randn(320, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    step = 0
    with open(os.path.join(args.out, f"rank{accelerator.process_index}.log"), "a") as log:
        for epoch in range(args.epochs):
            model.train()
            for inputs, targets in loader:
                with accelerator.accumulate(model):
                    loss = nn.functional.mse_loss(model(inputs), targets)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    step += 1
                    lr = scheduler.get_last_lr()
                    log.write(f"step {step} {epoch} {loss.item()!r} {lr} {inputs.sum().item()!r} {draws()}\n")
                    log.flush()
                    pause()
            mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
            log.write(f"epoch {epoch} {mean!r}\n")
            log.flush()
        log.write(f"final {digest(accelerator.unwrap_model(model).state_dict())} {digest(optimizer.state_dict())}\n")
    accelerator.end_training()


if __name__ == "__main__":
    main()
