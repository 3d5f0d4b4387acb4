"""C06: rank 1 leaves with code 0 in the middle of the training; only the survivors fail, and they are not to blame.

paceline run --nproc-per-node 2 examples/broken/c06_leaves.py
"""

import os
import sys

from training import Training, arguments

args = arguments(__doc__, politely=0)
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            sys.exit(0) if args.politely else os._exit(0)
        training.step()
