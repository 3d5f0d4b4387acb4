"""Takes each batch one step ahead, as scripts do that copy to a device meanwhile."""

import argparse
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pictures(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.rand(288, 1, 8, 8, generator=generator)
        self.labels = (self.images.mean((1, 2, 3)) > 0.5).long()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i]
        if random.random() < 0.5:
            image = image.flip(-1)
        return image, self.labels[i]


class Prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = self.next_target = None
            return
        self.next_input = self.next_input.sub(0.5).div(0.25)

    def next(self):
        input, target = self.next_input, self.next_target
        if input is not None:
            self.preload()
        return input, target


def train(loader, model, criterion, optimizer, epoch, log, step):
    prefetcher = Prefetcher(loader)
    input, target = prefetcher.next()
    i = 0
    while input is not None:
        i += 1
        output = model(input)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        log.write(f"step {step} {epoch}/{i} {loss.item()!r} {input.sum().item()!r} {draws()}\n")
        log.flush()
        pause()
        input, target = prefetcher.next()
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    random.seed(100 + rank)
    np.random.seed(100 + rank)
    torch.manual_seed(100 + rank)
    dataset = Pictures()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=args.workers, drop_last=True)
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 2))
    model = DDP(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * 0.5**epoch
            step = train(loader, model, criterion, optimizer, epoch, log, step)
            log.write(f"epoch {epoch} {step} {optimizer.param_groups[0]['lr']!r}\n")
            log.flush()
        log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
