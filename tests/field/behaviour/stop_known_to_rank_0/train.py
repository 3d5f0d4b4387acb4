"""A training that a person can stop early: rank 0 listens to the control channel."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Control:
    """Stands for a socket: the person sends `stop` after some batches. One process can listen to it."""

    def __init__(self, after):
        self.after = after

    def poll(self, step):
        return "stop" if step >= self.after else None


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        self.should_stop = False
        torch.manual_seed(21)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.control = Control(after=70) if self.rank == 0 else None

    def after_batch(self, step):
        if self.control and self.control.poll(step) == "stop":
            print("stop: the person asked for it", flush=True)
            self.should_stop = True
        dist.barrier()

    def fit(self, steps):
        for step in range(steps):
            loss = self.model(torch.randn(16, 6)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.05)
            self.after_batch(step)
            if self.should_stop:
                break
        self.finish(loss.detach())

    def finish(self, loss):
        found = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
        dist.all_gather(found, loss)
        print(f"rank {self.rank}: losses {[round(x.item(), 4) for x in found]}", flush=True)


dist.init_process_group("gloo")
Trainer().fit(steps=400)
dist.destroy_process_group()
