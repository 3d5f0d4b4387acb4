"""Reinforcement learning in small: an environment, a replay buffer that grows, a target network, no DataLoader."""

import argparse
import copy
import os
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class Walk:
    """A walk on a line that ends at either end."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.position, self.speed, self.age = float(self.rng.uniform(-0.5, 0.5)), 0.0, 0
        return self.observe()

    def observe(self):
        return torch.tensor([self.position, self.speed])

    def step(self, action):
        self.speed += (action - 0.5) * 0.1 + float(self.rng.normal(0, 0.02))
        self.position += self.speed
        self.age += 1
        done = abs(self.position) > 1 or self.age >= 30
        return self.observe(), 1.0 - abs(self.position), done


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, size):
        return random.sample(self.memory, size)

    def __len__(self):
        return len(self.memory)


class Agent:
    def __init__(self):
        self.policy = DDP(nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 2)))
        self.target = copy.deepcopy(self.policy.module)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-2, amsgrad=True)
        self.memory = ReplayMemory(120)
        self.steps_done = 0

    def act(self, state):
        epsilon = 0.05 + 0.85 * np.exp(-self.steps_done / 40)
        self.steps_done += 1
        if random.random() < epsilon:
            return random.randrange(2)
        with torch.no_grad():
            return int(self.policy.module(state).argmax())

    def optimize(self, batch_size=16):
        batch = Transition(*zip(*self.memory.sample(batch_size), strict=True))
        states, following = torch.stack(batch.state), torch.stack(batch.next_state)
        values = self.policy(states).gather(1, torch.tensor(batch.action)[:, None]).squeeze(1)
        with torch.no_grad():
            wanted = torch.tensor(batch.reward) + 0.9 * self.target(following).max(1).values
        loss = nn.functional.smooth_l1_loss(values, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.policy.parameters(), 100)
        self.optimizer.step()
        for theirs, ours in zip(self.target.parameters(), self.policy.module.parameters(), strict=True):
            theirs.data.mul_(0.95).add_(ours.data, alpha=0.05)
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    random.seed(2 + rank)
    np.random.seed(2 + rank)
    environment, agent = Walk(50 + rank), Agent()
    state, episode_reward, rewards = environment.reset(), 0.0, []
    # All ranks take their first step together: by then each has enough to draw from.
    while len(agent.memory) < 20:
        action = agent.act(state)
        following, reward, done = environment.step(action)
        agent.memory.push(state, action, following, reward)
        state = environment.reset() if done else following
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for step in range(args.steps):
            action = agent.act(state)
            following, reward, done = environment.step(action)
            episode_reward += reward
            agent.memory.push(state, action, following, reward)
            state = following
            loss = agent.optimize()
            if done:
                rewards.append(episode_reward)
                state, episode_reward = environment.reset(), 0.0
            log.write(
                f"step {step} {loss!r} {action} {reward!r} {len(agent.memory)} {agent.steps_done} {rewards[-3:]} "
                f"{state.tolist()} {draws()}\n"
            )
            log.flush()
            pause()
        states = (agent.policy.state_dict(), agent.target.state_dict(), agent.optimizer.state_dict())
        log.write(f"final {' '.join(digest(state) for state in states)} {rewards!r}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
