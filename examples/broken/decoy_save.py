"""Decoy: rank 0 writes a checkpoint of 200 MB every so often, down to the disk, while the others wait in their next step.

paceline run --nproc-per-node 2 examples/broken/decoy_save.py --rank 0
"""

import os
import tempfile

import torch
from training import Training, arguments

args = arguments(__doc__, mib=200, every=40)
state = {"weights": torch.zeros(args.mib * 2**18)}
with Training(args) as training, tempfile.TemporaryDirectory() as folder:
    for step in training.steps():
        if training.is_broken and step % args.every == args.at_step:
            with open(os.path.join(folder, "checkpoint.pt"), "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
        training.step()
