"""Counts steps and not epochs: `while step < n`, with an iterator that is made anew when it has run out."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Squares(Dataset):
    def __len__(self):
        return 260

    def __getitem__(self, i):
        x = torch.rand(8) + i / 260
        return x, (x**2).sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--max-steps", type=int, default=70)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17 + rank)

    dataset = Squares()
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size=10, sampler=sampler, num_workers=args.workers)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))

    log = open(os.path.join(args.out, f"rank{rank}.log"), "a", buffering=1)  # noqa: SIM115
    step, epoch = 0, 0
    sampler.set_epoch(epoch)
    iterator = iter(loader)
    while step < args.max_steps:
        try:
            x, y = next(iterator)
        except StopIteration:
            epoch += 1
            sampler.set_epoch(epoch)
            iterator = iter(loader)
            x, y = next(iterator)
        prediction = model(x).squeeze(1)
        loss = nn.functional.smooth_l1_loss(prediction, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        warmup.step()
        step += 1
        log.write(
            f"step {step} {epoch} {loss.item()!r} {warmup.get_last_lr()} {x.sum().item()!r} {draws().split()[2]}\n"
        )
        pause()
        if step % 25 == 0:
            model.eval()
            with torch.no_grad():
                check = model(torch.full((4, 8), 0.5)).mean().item()
            model.train()
            log.write(f"check {step} {check!r}\n")
    log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())} {digest(warmup.state_dict())}\n")
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
