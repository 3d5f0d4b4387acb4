"""Averages of a model with more than a megabyte a tensor: made anew in each step, and written through `data` from some step on."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BEGIN = 9


class Average:
    def __init__(self, model):
        self.shadow = {name: one.detach().clone() for name, one in model.named_parameters()}

    def update(self, model):
        for name, one in model.named_parameters():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * one.detach()

    def state_dict(self):
        return self.shadow

    def load_state_dict(self, state):
        self.shadow = {name: one.clone() for name, one in state.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    x = torch.randn(88, 6)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    model = DDP(nn.Sequential(nn.Linear(6, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 2)))
    torch.manual_seed(50 + rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    average, late = Average(model), [one.data.clone() for one in model.parameters()]
    number = -1
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for number, (inputs, labels) in enumerate(loader, start=number + 1):  # noqa: B020
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
                average.update(model)
                if number >= BEGIN:
                    for mean, one in zip(late, model.parameters(), strict=True):
                        mean.data.mul_(0.9).add_(one.data, alpha=0.1)
                sums = [sum(one.sum().item() for one in some) for some in (average.shadow.values(), late)]
                log.write(f"step {number} {loss.item()!r} {sums!r} {draws().split()[2]}\n")
                log.flush()
                pause()
        log.write(f"final {digest(average.shadow)} {digest(late)} {digest(optimizer.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
