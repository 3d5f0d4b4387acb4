"""Sums the ranks of two machines, the first thing to try."""

import os
import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    number = torch.tensor([float(dist.get_rank())])
    for _ in range(20):
        total = number.clone()
        dist.all_reduce(total)
        time.sleep(0.1)
    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}: sum {total.item()}", flush=True)
    dist.destroy_process_group()


main()
