"""Half way a part of the model is frozen, whose gradients stay zero in place, and a part gets into the optimizer. Weights are tied."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.inward, self.outward = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.outward.weight = self.inward.weight
        self.head, self.late = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, images):
        hidden = self.conv(images).relu().mean((2, 3))
        hidden = self.outward(torch.tanh(self.inward(hidden)))
        return self.head(hidden) + self.late(hidden)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    images = torch.randn(72, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    data = TensorDataset(images, (images.sum((1, 2, 3)) > 0).long())
    net = Tied().to(memory_format=torch.channels_last)
    model = DDP(net, find_unused_parameters=True)
    torch.manual_seed(30 + rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=3, sampler=sampler)
    optimizer = torch.optim.AdamW([p for n, p in net.named_parameters() if not n.startswith("late")], lr=0.01)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for x, y in loader:
                if step == 5:
                    net.conv.requires_grad_(False)
                if step == 12:
                    optimizer.add_param_group({"params": list(net.late.parameters()), "lr": 0.005})
                optimizer.zero_grad(set_to_none=False)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                step += 1
                frozen = net.conv.weight
                log.write(
                    f"step {step} {loss.item()!r} {frozen.sum().item()!r} {frozen.stride()} {draws().split()[2]}\n"
                )
                log.flush()
                pause()
        log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
