"""Decoy: every rank evaluates for 12 s, without a collective. Nobody waits for anybody, and all of them compute.

paceline run --nproc-per-node 2 --on-hang stop examples/broken/decoy_all_evaluate.py
"""

import time

import torch
from training import Training, arguments


@torch.no_grad()
def evaluate(seconds: float) -> float:
    """Large products of matrices, of which each takes a while, as a large model's do."""
    weights, total = torch.randn(1024, 1024), 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        total += (weights @ weights).mean().item()
    return total


args = arguments(__doc__, seconds=12)
with Training(args) as training:
    for step in training.steps():
        if step == args.at_step:
            evaluate(args.seconds)
        training.step()
