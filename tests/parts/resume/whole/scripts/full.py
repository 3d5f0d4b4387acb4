"""DDP with everything that people put around it: augmentation, accumulation, EMA, a schedule, clipping, evaluation, the best model."""

import argparse
import copy
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Noisy(Dataset):
    def __init__(self, size, features=32, augment=True):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(size, features, generator=generator)
        self.y = (self.x @ torch.randn(features, generator=generator) > 0).long()
        self.augment = augment

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        if self.augment:
            x = x + 0.1 * torch.randn_like(x) + 0.01 * random.random() + 0.01 * float(np.random.rand())
        return x, self.y[index], index


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    @property
    def average(self):
        return self.total / max(1, self.count)


def evaluate(model, loader, device="cpu"):
    model.eval()
    right, total, losses = 0, 0, 0.0
    with torch.no_grad():
        for x, y, _ in loader:
            logits = model(x.to(device))
            losses += nn.functional.cross_entropy(logits, y, reduction="sum").item()
            right += (logits.argmax(1) == y).sum().item()
            total += len(y)
    model.train()
    return losses / total, right / total


def train_one_epoch(args, epoch, model, ema, loader, optimizer, scheduler, counters, meter, log):
    meter.reset()
    seen = 0
    for i, (x, y, index) in enumerate(loader):
        seen += int(index.sum())
        loss = nn.functional.cross_entropy(model(x), y) / args.accumulate
        loss.backward()
        meter.update(loss.item() * args.accumulate, len(x))
        counters["batches"] += 1
        if (i + 1) % args.accumulate:
            continue
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        ema.update_parameters(model.module)
        counters["steps"] += 1
        log.write(
            f"step {counters['steps']} epoch {epoch} loss {loss.item()!r} norm {norm.item()!r} "
            f"lr {scheduler.get_last_lr()[0]!r} mean {meter.average!r} batches {counters['batches']} seen {seen} "
            f"draws {draws()}\n"
        )
        log.flush()
        pause()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--batches", type=int, default=24, help="of an epoch and a rank")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--start-method", help="of the workers")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    random.seed(args.seed + rank)
    np.random.seed(args.seed + rank)
    torch.manual_seed(args.seed)

    train_set = Noisy(args.batch * args.batches * world)
    sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed)
    loader = DataLoader(
        train_set,
        batch_size=args.batch,
        sampler=sampler,
        num_workers=args.workers,
        persistent_workers=args.persistent,
        multiprocessing_context=args.start_method,
    )
    test_loader = DataLoader(Noisy(384, augment=False), batch_size=16)

    net = nn.Sequential(
        nn.Linear(32, args.hidden),
        nn.BatchNorm1d(args.hidden),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(args.hidden, args.hidden),
        nn.ReLU(),
        nn.Linear(args.hidden, 2),
    )
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    model = DDP(net)
    torch.manual_seed(args.seed + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    steps = args.epochs * len(loader) // args.accumulate
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)

    counters = {"steps": 0, "batches": 0}
    meter = Meter()
    best_accuracy, best_state = 0.0, copy.deepcopy(net.state_dict())
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            train_one_epoch(args, epoch, model, ema, loader, optimizer, scheduler, counters, meter, log)
            loss, accuracy = evaluate(model.module, test_loader)
            _, ema_accuracy = evaluate(ema.module, test_loader)
            if accuracy > best_accuracy:
                best_accuracy, best_state = accuracy, copy.deepcopy(model.module.state_dict())
            log.write(
                f"epoch {epoch} mean {meter.average!r} loss {loss!r} accuracy {accuracy!r} ema {ema_accuracy!r} "
                f"best {best_accuracy!r} steps {counters['steps']}\n"
            )
            log.flush()
        log.write(
            f"final model {digest(model.state_dict())} optimizer {digest(optimizer.state_dict())} "
            f"ema {digest(ema.state_dict())} best {digest(best_state)}\n"
        )
        log.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
