"""Stops when it no longer gets better, and has a checkpoint of its own, which is loaded where there is one."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EarlyStopping:
    def __init__(self, patience=2, delta=0.2):
        self.patience, self.delta = patience, delta
        self.best, self.bad, self.stop = None, 0, False

    def __call__(self, loss):
        if self.best is None or loss < self.best - self.delta:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
            self.stop = self.bad >= self.patience


def save(path, epoch, step, model, optimizer, scheduler, stopper):
    state = {
        "epoch": epoch,
        "step": step,
        "model": model.module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "stopper": vars(stopper),
    }
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def validate(model, loader):
    model.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in loader:
            total += torch.tensor([nn.functional.mse_loss(model(x), y).item() * len(x), len(x)])
    model.train()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(55)
    x = torch.randn(200, 5)
    y = x.square().sum(1, keepdim=True) + 0.5 * torch.randn(200, 1)
    train, valid = TensorDataset(x[:160], y[:160]), TensorDataset(x[160:], y[160:])
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=8, sampler=sampler)
    valid_loader = DataLoader(valid, batch_size=8, sampler=DistributedSampler(valid, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.8)
    scheduler = ReduceLROnPlateau(optimizer, patience=0, factor=0.3)
    stopper = EarlyStopping()
    first, step = 0, 0
    path = os.path.join(args.out, "checkpoint.pt")
    if os.path.exists(path):
        checkpoint = torch.load(path, map_location="cpu", weights_only=False)
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        vars(stopper).update(checkpoint["stopper"])
        first, step = checkpoint["epoch"] + 1, checkpoint["step"]
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(first, args.epochs):
            sampler.set_epoch(epoch)
            for inputs, targets in loader:
                loss = nn.functional.mse_loss(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_value_(model.parameters(), 5.0)
                optimizer.step()
                step += 1
                lr = optimizer.param_groups[0]["lr"]
                log.write(f"step {step} {epoch} {loss.item()!r} {lr!r} {inputs.sum().item()!r} {draws().split()[2]}\n")
                log.flush()
                pause()
            valid_loss = validate(model, valid_loader)
            scheduler.step(valid_loss)
            stopper(valid_loss)
            if rank == 0:
                save(path, epoch, step, model, optimizer, scheduler, stopper)
            dist.barrier()
            log.write(f"epoch {epoch} {valid_loss!r} {stopper.best!r} {stopper.bad} {scheduler.num_bad_epochs}\n")
            log.flush()
            if stopper.stop:
                log.write(f"stopped {epoch}\n")
                break
        log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
