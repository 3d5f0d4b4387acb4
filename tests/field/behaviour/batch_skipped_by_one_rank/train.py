"""A draft model that learns from blocks which are cut at anchors in each sample."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

BLOCK = 6


class NoAnchor(ValueError):
    pass


class Samples(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        length = 4 if index in range(121, 129, 2) else 16  # four short samples, all of one rank's batch
        return torch.randn(length, 8, generator=torch.Generator().manual_seed(index))


def blocks(batch):
    found = [sample[-BLOCK:] for sample in batch if len(sample) >= BLOCK]
    if not found:
        raise NoAnchor("no sample of this batch is long enough for a block")
    return torch.stack(found).flatten(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(BLOCK * 8, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Samples()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler, collate_fn=list)
    for batch in loader:
        try:
            inputs = blocks(batch)
        except NoAnchor as skipped:
            print(f"skip: {skipped}", flush=True)
            continue
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.08)
    dist.barrier()
    print("epoch done", flush=True)
    dist.destroy_process_group()


main()
