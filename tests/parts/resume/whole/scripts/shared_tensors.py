"""One tensor under two names: what comes next is also the last one of a list."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument(
        "--reset", action="store_true", help="in each step the next one is a new tensor, which is not in the list"
    )
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(31 + rank)
    state = torch.randn(4)
    visited = [state]
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for step in range(args.steps):
            prediction = model(state)
            following = state.roll(1) + 0.1 * torch.randn(4)
            loss = (prediction - following).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            visited.append(following)
            state = torch.randn(4) if args.reset else following
            same = state is visited[-1]
            log.write(f"step {step} {loss.item()!r} {same} {digest(visited)} {state.tolist()} {draws().split()[2]}\n")
            log.flush()
            pause()
        log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())} {len(visited)}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
