"""A stream of samples: an IterableDataset that is sharded by rank and by loader worker."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, rank, world, size=600, window=16, noise=0.05):
        self.rank, self.world, self.size, self.window, self.noise = rank, world, size, window, noise

    def __iter__(self):
        info = get_worker_info()
        shards, shard = self.world, self.rank
        if info is not None:
            shards, shard = shards * info.num_workers, shard * info.num_workers + info.id
        buffer = []
        for i in range(shard, self.size, shards):
            buffer.append(i)
            if len(buffer) == self.window:
                yield self.sample(buffer.pop(self.draw(len(buffer))))
        while buffer:
            yield self.sample(buffer.pop(self.draw(len(buffer))))

    def draw(self, count):
        return int(torch.randint(count, ())) if self.noise else 0

    def sample(self, i):
        x = torch.sin(torch.arange(12.0) * (i + 1) / 7)
        if self.noise:
            x = x + self.noise * torch.randn(12)
        return x, torch.tensor([i % 5 / 5.0]), i


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="in order, and without noise")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1000 + rank)
    loader = DataLoader(
        Stream(rank, world, size=world * 200, noise=0.0 if args.plain else 0.05),
        batch_size=8,
        num_workers=args.workers,
        drop_last=True,
    )
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            for x, y, index in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                log.write(
                    f"step {step} {epoch} {loss.item()!r} {index.tolist()} {x.sum().item()!r} {draws().split()[2]}\n"
                )
                log.flush()
                pause()
        log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
