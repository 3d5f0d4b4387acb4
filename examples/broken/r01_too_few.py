"""R01: the script asks for one rank more than were started, and every rank waits for it.

paceline run --nproc-per-node 2 examples/broken/r01_too_few.py
"""

import os
import time

from training import RANK, Training, arguments

args = arguments(__doc__, absent=0)
if args.absent and args.rank == RANK:
    time.sleep(3600)  # this rank was started, and never joins
if not args.absent:
    os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) + 1)
with Training(args) as training:
    for _ in training.steps():
        training.step()
