"""Learns embeddings with a margin between the classes."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = 12


class MarginLoss(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(CLASSES, size))

    def forward(self, embeddings, labels):
        cosine = nn.functional.normalize(embeddings) @ nn.functional.normalize(self.centres).T
        margin = 0.2 * nn.functional.one_hot(labels, CLASSES)
        return nn.functional.cross_entropy(16 * (cosine - margin), labels)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    inputs = torch.randn(960, 20)
    data = TensorDataset(inputs, inputs[:, :CLASSES].argmax(1))
    trunk = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16)))
    criterion = MarginLoss(16)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *criterion.parameters()], lr=3e-3)
    sampler = DistributedSampler(data, seed=4)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    for epoch in range(8):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = criterion(trunk(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save({"trunk": trunk.module.state_dict(), "loss": criterion.state_dict()}, "model.pt")
    dist.destroy_process_group()


main()
