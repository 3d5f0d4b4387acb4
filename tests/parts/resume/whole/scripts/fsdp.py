"""Parameters, gradients and Adam's averages are spread over the ranks by `fully_shard` (FSDP2)."""

import argparse
import hashlib
import os

import torch
import torch.distributed as dist
from fingerprint import draws, pause
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.dropout = nn.Dropout(0.1)
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        return x + self.dropout(self.inner(x))


def shards(values):
    """SHA-256 of this rank's own shards."""
    sha = hashlib.sha256()
    for value in values:
        own = value.to_local() if hasattr(value, "to_local") else value
        sha.update(own.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


@torch.no_grad()
def evaluate(model, inputs, targets):
    model.eval()
    loss = nn.functional.mse_loss(model(inputs).float(), targets).item()
    model.train()
    return loss


def train(args):
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(30)
    x = torch.randn(world * 6 * args.batches, 21, generator=generator)
    y = x[:, :3].prod(1, keepdim=True)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, seed=4)
    loader = DataLoader(dataset, batch_size=6, sampler=sampler)
    torch.manual_seed(31)
    blocks = [Block(21) for _ in range(3)]
    model = nn.Sequential(*blocks, nn.Linear(21, 1))
    options = {}
    if args.mixed:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks:
        fully_shard(block, reshard_after_forward=not args.whole, **options)
    fully_shard(model, reshard_after_forward=not args.whole, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.8)
    torch.manual_seed(32 + rank)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for i, (inputs, targets) in enumerate(loader):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(inputs).float(), targets)
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0).full_tensor()
                optimizer.step()
                scheduler.step()
                step += 1
                held_out = evaluate(model, x[:16], y[:16]) if args.whole and i % 3 == 0 else None
                log.write(
                    f"step {step} {loss.item()!r} {norm.item()!r} {held_out!r} {blocks[0].passes} {scheduler.get_last_lr()[0]!r} "
                    f"{inputs.sum().item()!r} {draws().split()[2]}\n"
                )
                log.flush()
                pause()
            log.write(f"epoch {epoch} {evaluate(model, x[:16], y[:16])!r}\n")
            log.flush()
        model.reshard()
        for block in blocks:
            block.reshard()
        averages = [optimizer.state[p][name] for p in model.parameters() for name in ("exp_avg", "exp_avg_sq", "step")]
        log.write(f"final {shards(model.parameters())} {shards(averages)}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20, help="of an epoch and a rank")
    parser.add_argument("--mixed", action="store_true", help="computes in bfloat16")
    parser.add_argument("--whole", action="store_true", help="keeps whole parameters after a forward pass")
    dist.init_process_group("gloo")
    train(parser.parse_args())
    dist.destroy_process_group()
