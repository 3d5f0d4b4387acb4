"""Two networks, two optimizers, each with a loss of its own."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--epochs", type=int, default=3)
opt = parser.parse_args()


class Generator(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.latent = latent
        self.layers = nn.Sequential(nn.Linear(latent, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2), nn.Linear(32, 2))

    def forward(self, z):
        return self.layers(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(99)
    angle = torch.rand(320) * 6.28
    ring = TensorDataset(torch.stack((angle.cos(), angle.sin()), 1) + 0.05 * torch.randn(320, 2))
    sampler = DistributedSampler(ring)
    dataloader = DataLoader(ring, batch_size=8, sampler=sampler)
    netG, netD = DDP(Generator()), DDP(Discriminator(), broadcast_buffers=False)
    torch.manual_seed(99 + rank)
    fixed_noise = torch.randn(16, 8)
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
    log = open(os.path.join(opt.out, f"rank{rank}.log"), "a")  # noqa: SIM115
    iters, g_losses, d_losses = 0, [], []
    for epoch in range(opt.epochs):
        sampler.set_epoch(epoch)
        for i, (real,) in enumerate(dataloader, 0):
            netD.zero_grad()
            label = torch.full((len(real), 1), 0.9)
            real_loss = criterion(netD(real), label)
            real_loss.backward()
            fake = netG(torch.randn(len(real), 8))
            label.fill_(0.0)
            fake_loss = criterion(netD(fake.detach()), label)
            fake_loss.backward()
            optimizerD.step()
            # The generator learns every second time only.
            if i % 2 == 0:
                netG.zero_grad()
                label.fill_(0.9)
                g_loss = criterion(netD(fake), label)
                g_loss.backward()
                optimizerG.step()
                g_losses.append(g_loss.item())
            d_losses.append(real_loss.item() + fake_loss.item())
            iters += 1
            log.write(
                f"step {iters} {epoch} {i} D {d_losses[-1]!r} G {g_losses[-1]!r} {sum(g_losses)!r} "
                f"{real.sum().item()!r} {draws().split()[2]}\n"
            )
            log.flush()
            pause()
        with torch.no_grad():
            netG.eval()
            log.write(f"epoch {epoch} {netG(fixed_noise).abs().mean().item()!r} {len(g_losses)} {len(d_losses)}\n")
            log.flush()
            netG.train()
    states = (netG.state_dict(), netD.state_dict(), optimizerG.state_dict(), optimizerD.state_dict())
    log.write(f"final {' '.join(digest(state) for state in states)} {sum(d_losses)!r}\n")
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
