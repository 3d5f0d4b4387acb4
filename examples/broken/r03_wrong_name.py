"""R03: rank 1 looks for rank 0 under a name that nobody knows.

paceline run --nproc-per-node 2 examples/broken/r03_wrong_name.py
"""

import os

from training import RANK, Training, arguments

args = arguments(__doc__, name="no-such-host.invalid")
if args.rank == RANK:
    os.environ["MASTER_ADDR"] = args.name
with Training(args) as training:
    for _ in training.steps():
        training.step()
