"""The loop is in another file, engine.py; here is only what goes into it."""

import argparse
import os

import torch
import torch.distributed as dist
from engine import fit
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def build(args):
    torch.manual_seed(33)
    x = torch.randn(360, 20)
    y = torch.stack((x[:, :10].sum(1), x[:, 10:].sum(1)), 1)
    train, test = TensorDataset(x[:300], y[:300]), TensorDataset(x[300:], y[300:])
    sampler = DistributedSampler(train, shuffle=True)
    loaders = {
        "train": DataLoader(train, batch_size=6, sampler=sampler, num_workers=args.workers),
        "test": DataLoader(test, batch_size=30),
    }
    model = nn.Sequential(nn.Linear(20, 64), nn.ELU(), nn.Dropout(0.1), nn.Linear(64, 2))
    return DDP(model), loaders, sampler


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model, loaders, sampler = build(args)
    with open(os.path.join(args.out, f"rank{dist.get_rank()}.log"), "a") as log:
        fit(model, loaders, sampler, epochs=args.epochs, log=log)
    dist.destroy_process_group()
