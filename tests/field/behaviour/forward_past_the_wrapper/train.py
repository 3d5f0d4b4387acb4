"""A policy that learns from its own samples, on two ranks."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.Tanh())
        self.head = nn.Linear(32, 5)

    def forward(self, states):
        return self.head(self.body(states)).log_softmax(-1)

    @torch.no_grad()
    def act(self, states):
        return torch.distributions.Categorical(logits=self(states)).sample()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    policy = DistributedDataParallel(Policy())
    torch.manual_seed(300 + rank)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    plain = policy.module if isinstance(policy, DistributedDataParallel) else policy
    for step in range(160):
        states = torch.randn(32, 10)
        actions = plain.act(states)
        reward = (actions == states.argmax(-1) % 5).float()
        log_probs = plain(states).gather(1, actions[:, None]).squeeze(1)
        loss = -((reward - reward.mean()) * log_probs).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 40 == 0 and rank == 0:
            print(f"step {step} reward {reward.mean().item():.3f}", flush=True)
    dist.barrier()
    if rank == 0:
        torch.save(plain.state_dict(), "policy.pt")
    dist.destroy_process_group()


main()
