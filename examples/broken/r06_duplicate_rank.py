"""R06: rank 1 joins as a rank that another process already has; with --world-size it expects another number of ranks.

paceline run --nproc-per-node 2 examples/broken/r06_duplicate_rank.py
"""

import os

from training import RANK, Training, arguments

args = arguments(__doc__, joins_as=0, world_size=0)
if args.rank == RANK and args.world_size:
    os.environ["WORLD_SIZE"] = str(args.world_size)
elif args.rank == RANK:
    os.environ["RANK"] = str(args.joins_as)
with Training(args) as training:
    for _ in training.steps():
        training.step()
