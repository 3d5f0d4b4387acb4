"""Learns the next token; the loss is the mean over the tokens of all ranks."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(50, 24), nn.Linear(24, 50)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.manual_seed(80 + rank)
    for step in range(240):
        length = int(torch.randint(20, 60, ()))
        tokens = torch.randint(0, 50, (length,))
        logits = model(tokens)
        loss_sum = nn.functional.cross_entropy(logits, (tokens * 7 + 3) % 50, reduction="sum")
        count = torch.tensor(float(length))
        dist.all_reduce(loss_sum)
        dist.all_reduce(count)
        loss = loss_sum / count
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        time.sleep(0.05)
        if step % 40 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


main()
