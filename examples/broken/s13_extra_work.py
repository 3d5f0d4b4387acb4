"""S13: rank 0 does something more in every 10th step, and the others wait for it.

paceline run --nproc-per-node 2 examples/broken/s13_extra_work.py --rank 0 --steps 2000
"""

import time

from training import Training, arguments

args = arguments(__doc__, every=10, ms=200.0)


def log_and_evaluate() -> None:
    """What would be a look at the metrics."""
    time.sleep(args.ms / 1000)


with Training(args) as training:
    for step in training.steps():
        training.step()
        if training.is_broken and step >= args.at_step and step % args.every == 0:
            log_and_evaluate()
