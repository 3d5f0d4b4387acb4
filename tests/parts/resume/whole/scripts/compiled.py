"""A model that was compiled, in a DDP wrapper."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.first, self.second = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--backend", default="eager")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(14)
    x = torch.randn(256, 12)
    dataset = TensorDataset(x, x.cumsum(1))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)
    net = nn.Sequential(nn.Linear(12, 24), Block(24), Block(24), nn.Linear(24, 12))
    compiled = torch.compile(net, backend=args.backend)
    model = DDP(compiled)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
                optimizer.step()
                step += 1
                log.write(f"step {step} {epoch} {loss.item()!r} {inputs.sum().item()!r} {draws().split()[2]}\n")
                log.flush()
                pause()
        log.write(f"final {digest(net.state_dict())} {digest(optimizer.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
