"""R07: a variable that init_process_group needs is not set in rank 1, as in a script that was started without a launcher.

paceline run --nproc-per-node 2 examples/broken/r07_missing_variable.py
"""

import os

from training import RANK, Training, arguments

args = arguments(__doc__, variable="RANK")
if args.rank == RANK:
    del os.environ[args.variable]
with Training(args) as training:
    for _ in training.steps():
        training.step()
