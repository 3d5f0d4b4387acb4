"""Two trainings one after the other: an autoencoder, then a classifier on its encoder."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 6))
        self.decoder = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 16))

    def forward(self, x):
        return self.decoder(self.encoder(x + 0.1 * torch.randn_like(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(23)
    x = torch.randn(240, 16)
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    log = open(os.path.join(args.out, f"rank{rank}.log"), "a", buffering=1)  # noqa: SIM115
    step = 0

    autoencoder = Autoencoder()
    model = DDP(autoencoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, _ in loader:
            loss = nn.functional.mse_loss(model(inputs), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            log.write(f"step {step} pretraining {epoch} {loss.item()!r} {inputs.sum().item()!r} {draws().split()[2]}\n")
            pause()
    pretrained = digest(autoencoder.state_dict())
    mean = loss.item()

    classifier = DDP(nn.Sequential(autoencoder.encoder, nn.Dropout(0.1), nn.Linear(6, 2)))
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=30)
    for epoch in range(2):
        sampler.set_epoch(10 + epoch)
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(classifier(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            log.write(f"step {step} training {epoch} {loss.item()!r} {scheduler.get_last_lr()} {draws().split()[2]}\n")
            pause()
    log.write(f"final {pretrained} {mean!r} {digest(classifier.state_dict())} {digest(optimizer.state_dict())}\n")
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
