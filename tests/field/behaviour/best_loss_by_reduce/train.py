"""Sharded training that keeps the best state of a fine-tuning."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 4


def validate(epoch, rank):
    # The held-out shards differ: rank 1 has the rare classes and begins to overfit early.
    per_class = 0.80 - 0.10 * epoch if rank == 0 else 0.30 + 0.09 * epoch
    return torch.full((CLASSES,), per_class)


def save(model, epoch):
    piece = torch.cat([p.detach().flatten() for p in model.parameters()]).chunk(dist.get_world_size())[dist.get_rank()]
    pieces = [torch.zeros_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece.contiguous())
    if dist.get_rank() == 0:
        torch.save({"epoch": epoch, "weights": torch.cat(pieces)}, "best.pt")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    best = float("inf")
    for epoch in range(5):
        for _ in range(25):
            x = torch.randn(8, 12)
            loss = nn.functional.cross_entropy(model(x), torch.randint(0, 4, (8,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)
        losses = validate(epoch, rank)
        dist.reduce(losses, dst=0, op=dist.ReduceOp.SUM)
        current = losses.mean().item() / int(os.environ["WORLD_SIZE"])
        if current < best:
            best = current
            save(model, epoch)
        print(f"epoch {epoch}: loss {current:.3f}, best {best:.3f}", flush=True)
    dist.destroy_process_group()


main()
