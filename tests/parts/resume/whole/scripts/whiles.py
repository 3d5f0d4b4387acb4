"""Training loops that are `while`: batches made without a loader, accumulation inside, `break`, a `while` around a `for`, two in a row."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def batch_of(data, size=4):
    at = torch.randint(len(data) - 8, (size,))
    return torch.stack([data[i : i + 8] for i in at]), torch.stack([data[i + 8] for i in at])


def until_it_is_done(model, optimizer, data, most, log, name):
    """As in a language model's script: `while True`, micro-steps, evaluation at some steps, `break`."""
    number, best = 0, float("inf")
    x, y = batch_of(data)
    while True:
        lr = 1e-2 * min(1.0, (number + 1) / 10)
        for group in optimizer.param_groups:
            group["lr"] = lr
        if number % 7 == 0:
            model.eval()
            with torch.no_grad():
                found, tries = 0.0, 0
                while tries < 2:
                    a, b = batch_of(data)
                    found += nn.functional.mse_loss(model(a).squeeze(1), b).item()
                    tries += 1
            model.train()
            best = min(best, found)
        for micro in range(2):
            model.require_backward_grad_sync = micro == 1
            loss = nn.functional.mse_loss(model(x).squeeze(1), y) / 2
            x, y = batch_of(data)
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        number += 1
        log.write(f"step {name} {number} {loss.item()!r} {norm.item()!r} {lr!r} {best!r} {draws().split()[2]}\n")
        log.flush()
        pause()
        if number >= most:
            break
    return best


def epochs(model, optimizer, loader, sampler, most, log):
    """A `while` around a `for` that is left by a break."""
    epoch, seen = 0, 0
    while epoch < most:
        sampler.set_epoch(epoch)
        skipped = 0
        while torch.rand(()).item() < 0.3 and skipped < 3:
            skipped += len(batch_of(torch.arange(32.0)))
        for number, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
            log.write(f"step epoch {epoch} {seen} {skipped} {loss.item()!r} {x.sum().item()!r} {draws().split()[2]}\n")
            log.flush()
            pause()
            if number == 5:
                break
        epoch += 1
    else:
        log.write(f"epochs {epoch} {seen}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=16)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    dataset = TensorDataset(torch.randn(96, 8), torch.randn(96))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    torch.manual_seed(8 + rank)
    data = torch.randn(512).cumsum(0) / 20
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        # The same function twice, from two lines.
        first = until_it_is_done(model, optimizer, data, args.steps, log, "first")
        second = until_it_is_done(model, optimizer, data, args.steps, log, "second")
        epochs(model, optimizer, loader, sampler, 3, log)
        log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())} {first!r} {second!r}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
