"""No torch.distributed at all. Started as several ranks, each trains a model of its own."""

import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from fingerprint import digest, draws, pause
from torch.utils.data import DataLoader, TensorDataset


def train(args, model, loader, optimizer, epoch, log, state):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        state["step"] += 1
        log.write(f"step {state['step']} {epoch} {batch_idx} {loss.item()!r} {data.sum().item()!r} {draws()}\n")
        log.flush()
        pause()


def test(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            correct += (model(data).argmax(1) == target).sum().item()
    return correct


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(1 + rank)
    np.random.seed(1 + rank)
    random.seed(1 + rank)
    x = torch.rand(200, 1, 6, 6)
    dataset = TensorDataset(x, (x.mean((1, 2, 3)) * 20).long().clamp(0, 9))
    loader = DataLoader(dataset, batch_size=10, shuffle=True, num_workers=args.workers)
    test_loader = DataLoader(dataset, batch_size=100)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(128, 10),
        nn.LogSoftmax(1),
    )
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    state = {"step": 0}
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(1, args.epochs + 1):
            train(args, model, loader, optimizer, epoch, log, state)
            log.write(f"epoch {epoch} {test(model, test_loader)} {scheduler.get_last_lr()}\n")
            log.flush()
            scheduler.step()
        log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")


if __name__ == "__main__":
    main()
