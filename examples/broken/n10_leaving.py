"""N10: rank 1 leaves the training with sys.exit, and its exit handler takes an hour; the others wait for it meanwhile.

paceline run --nproc-per-node 2 examples/broken/n10_leaving.py
"""

import atexit
import sys
import time

from training import Training, arguments

args = arguments(__doc__, seconds=3600)


@atexit.register
def upload() -> None:
    if training.is_broken:
        time.sleep(args.seconds)


with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            sys.exit(0)
        training.step()
