"""Two heads on one body; the gradients are averaged by hand, in one piece."""

import time

import torch
import torch.distributed as dist
from torch import nn


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(18, 40), nn.ReLU())
        self.depth = nn.Linear(40, 1)
        self.kind = nn.Linear(40, 6)

    def forward(self, x, labelled):
        features = self.body(x)
        kinds = self.kind(features[labelled]) if labelled.any() else None
        return self.depth(features), kinds


def average(model):
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, piece in zip(gradients, flat.split([g.numel() for g in gradients])):
        g.copy_(piece.view_as(g))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    own = torch.Generator().manual_seed(70 + rank)
    for step in range(400):
        x = torch.randn(8, 18, generator=own)
        labelled = torch.rand(8, generator=own) < 0.9
        if rank == 1 and step == 150:
            labelled[:] = False  # a batch of frames that nobody has labelled
        depth, kinds = model(x, labelled)
        loss = (depth.squeeze(1) - x.sum(1)).abs().mean()
        if kinds is not None:
            loss = loss + nn.functional.cross_entropy(kinds, x[labelled, :6].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        average(model)
        optimizer.step()
        time.sleep(0.03)
        if step % 50 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


main()
