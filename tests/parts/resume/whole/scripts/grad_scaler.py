"""Mixed precision with a GradScaler that is enabled: it skips steps, and its scale goes up and down."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    x = torch.randn(320, 16)
    dataset = TensorDataset(x, x.sum(1, keepdim=True).tanh())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    # The first scale is far too large, so that the first steps are left out; it grows soon.
    largest = 2.0**124 if args.dtype == "bfloat16" else 2.0**14
    scaler = torch.amp.GradScaler("cpu", init_scale=largest, growth_interval=4)
    torch.manual_seed(4 + rank)
    batches, steps, scales = 0, 0, []
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for inputs, target in loader:
                with torch.autocast("cpu", dtype=getattr(torch, args.dtype)):
                    output = model(inputs)
                    loss = 100 * nn.functional.mse_loss(output.float(), target)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                before = scaler.get_scale()
                scaler.step(optimizer)
                scaler.update()
                batches += 1
                stepped = scaler.get_scale() >= before
                steps += stepped
                scales.append(scaler.get_scale())
                if epoch == 1 and batches % 7 == 0:
                    scaler.update(4 * largest)
                log.write(
                    f"{'step' if stepped else 'left out'} {batches} {steps} {epoch} {loss.item()!r} {norm.item()!r} {scaler.get_scale()!r} "
                    f"{inputs.sum().item()!r} {draws().split()[2]}\n"
                )
                log.flush()
                pause()
        log.write(
            f"final {digest(model.state_dict())} {digest(optimizer.state_dict())} {scaler.state_dict()} {len(set(scales))}\n"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
