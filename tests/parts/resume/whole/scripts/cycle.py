"""An endless stream of batches by a generator function, as in code for diffusion models."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def cycle(loader):
    while True:
        for batch in loader:  # noqa: UP028
            yield batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--no-accumulation", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(61 + rank)
    data = TensorDataset(torch.randn(150, 4))
    batches = cycle(DataLoader(data, batch_size=8, shuffle=True, num_workers=args.workers))
    betas = torch.linspace(1e-4, 0.2, 20)
    alphas = (1 - betas).cumprod(0)
    model = DDP(nn.Sequential(nn.Linear(5, 48), nn.SiLU(), nn.Linear(48, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
    accumulate = 1 if args.no_accumulation else 2
    log = open(os.path.join(args.out, f"rank{rank}.log"), "a")  # noqa: SIM115
    for step in range(args.steps):
        total_loss = 0.0
        for _ in range(accumulate):
            (x,) = next(batches)
            t = torch.randint(20, (len(x), 1))
            noise = torch.randn_like(x)
            noisy = alphas[t].sqrt() * x + (1 - alphas[t]).sqrt() * noise
            loss = nn.functional.mse_loss(model(torch.cat((noisy, t / 20), 1)), noise) / accumulate
            total_loss += loss.item()
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        log.write(f"step {step} {total_loss!r} {x.sum().item()!r} {t.sum().item()} {draws().split()[2]}\n")
        log.flush()
        pause()
    log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
