"""A GAN: two models, two optimizers, a step of each in turn; the first optimizer step is the discriminator's."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32)).to(device)
discriminator = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)).to(device)
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
loss_of = nn.BCEWithLogitsLoss()
for _ in range(3):
    real, noise = torch.randn(32, 32, device=device), torch.randn(32, 16, device=device)
    fake = generator(noise)
    discriminator.zero_grad()
    loss = loss_of(discriminator(real), torch.ones(32, 1, device=device))
    loss = loss + loss_of(discriminator(fake.detach()), torch.zeros(32, 1, device=device))
    loss.backward()
    of_discriminator.step()
    generator.zero_grad()
    loss_of(discriminator(fake), torch.ones(32, 1, device=device)).backward()
    of_generator.step()
