"""Saves its state in the background while the training goes on."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Saver:
    def __init__(self):
        self.thread = None

    def write(self, step, state):
        own = list(state)[dist.get_rank() :: dist.get_world_size()]
        if step > 100 and dist.get_rank() == 0:
            time.sleep(0.6)  # by now the share of rank 0 is larger, and its disk is busy
        plan = [None] * dist.get_world_size()
        dist.all_gather_object(plan, own)
        torch.save({name: state[name] for name in own}, f"part_{dist.get_rank()}.pt")

    def save(self, step, model):
        if self.thread is not None:
            self.thread.join()
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self.thread = threading.Thread(target=self.write, args=(step, state), name="saver")
        self.thread.start()
        time.sleep(0.2)  # removes the parts that are too old
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 16)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    saver = Saver()
    for step in range(1, 241):
        x = torch.randn(24, 16)
        loss = nn.functional.mse_loss(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if step % 40 == 0:
            saver.save(step, model)
            if dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
    saver.thread.join()
    dist.destroy_process_group()


main()
