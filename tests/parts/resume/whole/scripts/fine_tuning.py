"""Three parameter groups; the body is frozen and joins in at an epoch; learning rates are changed by hand."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

UNFREEZE_AT = 2


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU())
        self.neck = nn.Linear(40, 20)
        self.head = nn.Linear(20, 3)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return self.head(torch.relu(self.neck(self.body(x))))


def adjust(optimizer, epoch, step):
    for group in optimizer.param_groups:
        group["lr"] = group["initial"] * min(1.0, (step + 1) / 10) * 0.8**epoch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(71)
    x = torch.randn(288, 10)
    y = x[:, :3].argmax(1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    net = Classifier()
    for parameter in net.body.parameters():
        parameter.requires_grad = False
    model = DDP(net)
    optimizer = torch.optim.AdamW(
        [
            {"params": net.head.parameters(), "lr": 5e-3, "initial": 5e-3},
            {"params": net.neck.parameters(), "lr": 2e-3, "initial": 2e-3, "weight_decay": 0.1},
        ]
    )
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            if epoch == UNFREEZE_AT:
                for parameter in net.body.parameters():
                    parameter.requires_grad = True
                optimizer.add_param_group({"params": list(net.body.parameters()), "lr": 1e-3, "initial": 1e-3})
                # The reducer must learn of the parameters that joined in.
                model = DDP(net)
            for inputs, labels in loader:
                adjust(optimizer, epoch, step)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
                step += 1
                rates = [group["lr"] for group in optimizer.param_groups]
                log.write(
                    f"step {step} {epoch} {loss.item()!r} {rates} {int(net.seen)} {inputs.sum().item()!r} "
                    f"{draws().split()[2]}\n"
                )
                log.flush()
                pause()
        log.write(f"final {digest(net.state_dict())} {digest(optimizer.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
