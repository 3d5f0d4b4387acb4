"""Stochastic weight averaging in the last epochs, then the statistics of BatchNorm anew."""

import os
import sys

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, SWA_START = 6, 3


def main(out):
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    x = torch.randn(256, 12)
    data = TensorDataset(x, (x[:, :3].sum(1) > 0).float())
    sampler = DistributedSampler(data, seed=4)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
    )
    swa_model = AveragedModel(model.module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    swa_scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=2)
    loss_fn = nn.BCEWithLogitsLoss()
    step = 0
    with open(f"{out}/rank{rank}.log", "a") as log:
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for inputs, target in loader:
                optimizer.zero_grad()
                loss = loss_fn(model(inputs).squeeze(1), target)
                loss.backward()
                optimizer.step()
                step += 1
                lr = optimizer.param_groups[0]["lr"]
                print(
                    "step",
                    step,
                    epoch,
                    repr(loss.item()),
                    repr(lr),
                    inputs.sum().item(),
                    draws().split()[2],
                    file=log,
                    flush=True,
                )
                pause()
            if epoch >= SWA_START:
                swa_model.update_parameters(model.module)
                swa_scheduler.step()
            else:
                scheduler.step()
            print("epoch", epoch, int(swa_model.n_averaged), file=log, flush=True)
        update_bn(loader, swa_model)
        print("swa", digest(swa_model.state_dict()), file=log, flush=True)
        print("final", digest(model.state_dict()), digest(optimizer.state_dict()), file=log, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[sys.argv.index("--out") + 1]))
