"""N01: rank 1 falls asleep in its own code while the others wait.

paceline run --nproc-per-node 2 examples/broken/n01_asleep.py
"""

import time

from training import Training, arguments

args = arguments(__doc__, seconds=3600)
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            time.sleep(args.seconds)
        training.step()
