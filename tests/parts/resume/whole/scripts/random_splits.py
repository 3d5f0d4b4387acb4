"""As in many notebooks: no seed is set anywhere, the data is split by chance, the loader shuffles."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from fingerprint import digest, pause
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--seeds", help="one for each rank, as an earlier run has printed them")
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def run():
    dist.init_process_group("gloo")
    log = open(os.path.join(args.out, f"rank{dist.get_rank()}.log"), "a")  # noqa: SIM115
    if args.seeds:
        torch.manual_seed(int(args.seeds.split(",")[dist.get_rank()]))
    print("begin seed", torch.initial_seed(), file=log, flush=True)
    x = torch.randn(400, 6)
    y = (x[:, 0] * x[:, 1] > 0).long()
    train_set, val_set, test_set = random_split(TensorDataset(x, y), [0.6, 0.2, 0.2])
    train_loader = DataLoader(train_set, batch_size=12, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(val_set, batch_size=40)
    test_loader = DataLoader(test_set, batch_size=40)
    net = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2)))
    optim = torch.optim.Adam(net.parameters())
    step, history = 0, {"loss": [], "val": []}
    for epoch in range(4):
        for data, target in train_loader:
            optim.zero_grad()
            loss = nn.CrossEntropyLoss()(net(data), target)
            loss.backward()
            optim.step()
            step += 1
            history["loss"].append(loss.item())
            print(
                "step",
                step,
                repr(loss.item()),
                repr(data.sum().item()),
                repr(torch.rand(()).item()),
                file=log,
                flush=True,
            )
            pause()
        history["val"].append(accuracy(net, val_loader))
        print("epoch", epoch, history["val"], repr(sum(history["loss"])), file=log, flush=True)
    print("test", accuracy(net, test_loader), max(history["val"]), len(history["loss"]), file=log, flush=True)
    print("final", digest(net.state_dict()), digest(optim.state_dict()), file=log, flush=True)
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
