"""R02: nothing listens at the address at which rank 1 looks for rank 0: its port is another one.

paceline run --nproc-per-node 2 examples/broken/r02_refused.py
"""

import os

from training import RANK, Training, arguments

args = arguments(__doc__, port=1)
if args.rank == RANK:
    os.environ["MASTER_PORT"] = str(args.port)
with Training(args) as training:
    for _ in training.steps():
        training.step()
