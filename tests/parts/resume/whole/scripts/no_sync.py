"""Gradient accumulation with `no_sync`, so that gradients are exchanged once for three batches."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ACCUMULATE = 3


def train(args):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(12)
    x = torch.randn(world * 4 * 50, 10)
    dataset = TensorDataset(x, x.prod(1, keepdim=True))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=args.workers)
    model = DDP(
        nn.Sequential(nn.Linear(10, 40), nn.GELU(), nn.Dropout(0.05), nn.Linear(40, 40), nn.GELU(), nn.Linear(40, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    torch.manual_seed(12 + rank)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            running_loss = 0.0
            for batch_index, (inputs, targets) in enumerate(loader):
                last = batch_index + 1 == len(loader)
                update = (batch_index + 1) % ACCUMULATE == 0 or last
                with contextlib.nullcontext() if update else model.no_sync():
                    loss = nn.functional.mse_loss(model(inputs), targets) / ACCUMULATE
                    loss.backward()
                running_loss += loss.item()
                if update:
                    optimizer.step()
                    optimizer.zero_grad()
                    step += 1
                    log.write(
                        f"step {step} {epoch} {batch_index} {running_loss!r} {inputs.sum().item()!r} {draws().split()[2]}\n"
                    )
                    log.flush()
                    pause()
            log.write(f"epoch {epoch} {running_loss!r} {step}\n")
            log.flush()
        log.write(f"final {digest(model.module.state_dict())} {digest(optimizer.state_dict())}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    dist.init_process_group("gloo")
    train(parser.parse_args())
    dist.destroy_process_group()
