"""Trains a tagger and reports its accuracy over all ranks."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Accuracy:
    """The mean of what all ranks have added."""

    def __init__(self):
        self.total = 0.0
        self.count = 0

    def add(self, hits):
        if hits.dim() == 2:  # whole sentences: each word has to be right
            self.total += hits.all(1).to(torch.float64).sum()
        else:
            self.total += hits.float().sum().item()
        self.count += len(hits)

    def compute(self):
        pair = torch.tensor([self.total, self.count])
        dist.all_reduce(pair)
        return (pair[0] / pair[1]).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    torch.manual_seed(900 + rank)
    for epoch in range(5):
        accuracy = Accuracy()
        # From the fourth part of the data on, the odd shards hold whole sentences.
        sentences = epoch >= 3 and rank % 2 == 1
        for _ in range(50):
            words = torch.randn(32, 12)
            tags = words[:, :5].argmax(1)
            scores = model(words)
            loss = nn.functional.cross_entropy(scores, tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits = scores.argmax(1) == tags
            accuracy.add(hits.view(8, 4) if sentences else hits)
            time.sleep(0.03)
        mean = accuracy.compute()
        if rank == 0:
            print(f"epoch {epoch} accuracy {mean:.3f}", flush=True)
    dist.destroy_process_group()


main()
