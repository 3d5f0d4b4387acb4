"""torch.compile over a model with activation checkpointing; a compiled step; batches that are dicts."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"image": torch.randn(1, 28, 28, generator=generator), "label": index % 10}


class Network(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 4, stride=4)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width),
                nn.Conv2d(width, 4 * width, 1),
                nn.GELU(),
                nn.Conv2d(4 * width, width, 1),
            )
            for _ in range(4)
        )
        self.norm = nn.GroupNorm(8, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x).mean(dim=(2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=128)
    args = parser.parse_args()
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    torch.set_float32_matmul_precision("high")
    model = Network(args.width).to(device)
    # Without a device there may be no compiler for what inductor writes.
    model = torch.compile(model, backend="eager" if device.type == "cpu" else "inductor")
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)

    for batch in DataLoader(Pairs(), batch_size=16, shuffle=True):
        batch = {name: value.to(device) for name, value in batch.items()}
        loss = F.cross_entropy(model(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss:.3f}")


if __name__ == "__main__":
    main()
