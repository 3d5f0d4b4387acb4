"""Decoy: every rank compiles its model with a cold cache before it trains. It takes a while, and nothing hangs.

paceline run --nproc-per-node 2 examples/broken/decoy_compile.py
"""

import os
import tempfile
from functools import partial

import torch
from training import Training, arguments, network

args = arguments(__doc__, layers=30)
with tempfile.TemporaryDirectory() as cache:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    with Training(args, partial(network, layers=args.layers)) as training:
        training.model = torch.compile(training.model)
        for _ in training.steps():
            training.step()
