"""Decoy: every rank pauses for 20 s at the same step, as for a service that answers late. Nobody waits for another rank.

paceline run --nproc-per-node 2 --on-hang stop examples/broken/decoy_all_pause.py
"""

import time

from training import Training, arguments

args = arguments(__doc__, seconds=20)
with Training(args) as training:
    for step in training.steps():
        if step == args.at_step:
            time.sleep(args.seconds)
        training.step()
