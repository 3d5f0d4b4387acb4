"""Cross-validation: for each fold a new model, a new optimizer and new loaders."""

import argparse
import os
import statistics

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_model():
    return DDP(nn.Sequential(nn.Linear(7, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(91)
    x = torch.randn(300, 7)
    dataset = TensorDataset(x, x.norm(dim=1, keepdim=True))
    order = torch.randperm(len(dataset)).tolist()
    results, step = [], 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for fold in range(3):
            held_out = set(order[fold * 100 : (fold + 1) * 100])
            train_set = Subset(dataset, [i for i in order if i not in held_out])
            test_set = Subset(dataset, sorted(held_out))
            sampler = DistributedSampler(train_set, seed=fold)
            loader = DataLoader(train_set, batch_size=10, sampler=sampler)
            model = make_model()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
            for epoch in range(args.epochs):
                sampler.set_epoch(epoch)
                for inputs, targets in loader:
                    optimizer.zero_grad()
                    loss = nn.functional.l1_loss(model(inputs), targets)
                    loss.backward()
                    optimizer.step()
                    scheduler.step()
                    step += 1
                    log.write(
                        f"step {step} fold {fold} epoch {epoch} {loss.item()!r} {scheduler.get_last_lr()} "
                        f"{inputs.sum().item()!r} {draws().split()[2]}\n"
                    )
                    log.flush()
                    pause()
            model.eval()
            with torch.no_grad():
                errors = [nn.functional.l1_loss(model(a), b).item() for a, b in DataLoader(test_set, batch_size=50)]
            results.append(statistics.mean(errors))
            log.write(f"fold {fold} {results!r} {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")
            log.flush()
        log.write(f"final {statistics.mean(results)!r} {digest(model.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
