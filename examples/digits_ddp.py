"""Handwritten digits with DistributedDataParallel: ordinary PyTorch, a few seconds on two CPU cores.

    paceline run --nproc-per-node 2 examples/digits_ddp.py
    torchrun     --nproc-per-node 2 examples/digits_ddp.py

The data are the 1,797 scanned digits that scikit-learn carries (8 x 8 pixels). Four fifths train the network, one fifth tests it;
the program fails when fewer than 95 % of the test digits are read correctly.
"""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset, random_split

WANTED_ACCURACY = 0.95


def digits() -> tuple[Dataset, Dataset]:
    """The training and the test part, the same on every rank because the seed is."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    dataset = TensorDataset(images, torch.tensor(data.target))
    train, test = random_split(dataset, [0.8, 0.2], generator=torch.Generator().manual_seed(0))
    return train, test


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 2 * 2, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device) -> float:
    """One pass over this rank's share of the data; returns the mean loss."""
    model.train()
    total = torch.zeros((), device=device)
    for images, labels in loader:
        loss = F.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.no_grad()
def accuracy(model: nn.Module, dataset: Dataset, device: torch.device) -> float:
    """Fraction of `dataset` that the model reads correctly."""
    model.eval()
    images, labels = next(iter(DataLoader(dataset, batch_size=len(dataset))))
    predicted = model(images.to(device)).argmax(dim=1).cpu()
    return (predicted == labels).float().mean().item()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument(
        "--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR"), help="where the model is saved"
    )
    args = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()

    torch.manual_seed(0)
    train, test = digits()
    sampler = DistributedSampler(train, seed=0)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    model = DistributedDataParallel(network().to(device), device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, device)
        if rank == 0:
            print(f"epoch {epoch + 1:2}/{args.epochs}  loss {loss:.3f}")

    reached = 1.0
    if rank == 0:
        reached = accuracy(model.module, test, device)
        print(f"test accuracy {reached:.1%} on {len(test)} digits (wanted: at least {WANTED_ACCURACY:.0%})")
        if args.model_dir:
            torch.save(model.module.state_dict(), args.model_dir / "model.pt")
    dist.barrier()
    dist.destroy_process_group()
    return 0 if reached >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
