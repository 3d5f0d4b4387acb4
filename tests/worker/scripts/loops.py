"""Training loops of one process in which `optimizer.step` and a step are not the same thing. 6 steps each."""

import sys

import torch

model, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.Adam(other.parameters(), lr=0.1)
kept = []


def gradients():
    other(model(torch.randn(2, 4))).sum().backward()


def accumulation():
    for microbatch in range(24):
        gradients()
        if microbatch % 4 == 3:
            first.step()
            first.zero_grad()


def gan():
    for _ in range(6):
        gradients()
        first.step()
        gradients()
        second.step()


def folds():
    for _ in range(3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            gradients()
            optimizer.step()


def pairs_of_folds():
    """A GAN, and after it another one; the optimizers of the first live on."""
    for _ in range(2):
        pair = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
        kept.append(pair)
        for _ in range(3):
            for optimizer in pair:
                gradients()
                optimizer.step()


def joined_late():
    for step in range(6):
        gradients()
        first.step()
        if step > 2:
            second.step()


def scaler():
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(6):
        scaler.scale(model(torch.randn(2, 4)).sum()).backward()
        scaler.step(first)
        scaler.update()


def saving():
    for step in range(6):
        gradients()
        first.step()
        if step == 2:
            torch.save(model.state_dict(), sys.argv[2])


globals()[sys.argv[1]]()
