"""The training loop of two_files.py, with tqdm, enumerate and zip around what it goes over."""

import sys
from itertools import count

import torch
from fingerprint import digest, draws, pause
from torch.nn.functional import mse_loss
from tqdm import tqdm, trange


class Trainer:
    def __init__(self, model, optimizer, scheduler, log):
        self.model, self.optimizer, self.scheduler, self.log = model, optimizer, scheduler, log
        self.global_step = 0
        self.metrics = {"train": [], "test": []}

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        loss = mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.global_step += 1
        return loss.item()

    def train_epoch(self, loader, epoch):
        total = 0.0
        bar = tqdm(loader, desc=f"epoch {epoch}", file=sys.stdout, disable=None, leave=False)
        for index, ((x, y), number) in enumerate(zip(bar, count(100 * epoch), strict=False)):
            loss = self.train_step(x, y)
            total += loss
            bar.set_postfix(loss=f"{loss:.3f}")
            self.log.write(
                f"step {self.global_step} {epoch} {index} {number} {loss!r} {self.scheduler.get_last_lr()} "
                f"{x.sum().item()!r} {draws().split()[2]}\n"
            )
            self.log.flush()
            pause()
        self.metrics["train"].append(total / len(loader))

    @torch.no_grad()
    def test_epoch(self, loader):
        self.model.eval()
        losses = [mse_loss(self.model(x), y).item() for x, y in loader]
        self.metrics["test"].append(sum(losses) / len(losses))
        self.model.train()


def fit(model, loaders, sampler, epochs, log):
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=20)
    trainer = Trainer(model, optimizer, scheduler, log)
    for epoch in trange(epochs, disable=True):
        sampler.set_epoch(epoch)
        trainer.train_epoch(loaders["train"], epoch)
        trainer.test_epoch(loaders["test"])
        log.write(f"epoch {epoch} {trainer.metrics}\n")
        log.flush()
    log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())} {trainer.global_step}\n")
    log.flush()
