"""Decoy: rank 1 computes three times as long as the others in every step. Slow, and nothing hangs.

paceline run --nproc-per-node 2 examples/broken/decoy_slow_rank.py
"""

import time

import torch
from training import Training, arguments

args = arguments(__doc__, times=3)
with Training(args) as training:
    for _ in training.steps():
        loss = training.loss()
        if training.is_broken:
            end = time.monotonic() + (args.times - 1) * args.step_ms / 1000
            while time.monotonic() < end:
                torch.randn(64, 64).matmul(torch.randn(64, 64))
        training.backward(loss)
        training.update()
