"""S01: rank 1 computes longer than the others in every step, in its forward pass or (--inside 1) in the middle of backward.

paceline run --nproc-per-node 2 examples/broken/s01_straggler.py --steps 2000
"""

import time

from training import Training, arguments, network

args = arguments(__doc__, ms=40.0, inside=0)


def compute(*_: object) -> None:
    """Keep a core busy for a while."""
    end = time.perf_counter() + args.ms / 1000
    while time.perf_counter() < end:
        pass


# Several buckets, so that backward has a beginning and an end.
with Training(args, lambda: network(hidden=256, layers=6), bucket_cap_mb=0.5) as training:
    slow = training.is_broken
    for step in training.steps():
        if slow and step == args.at_step and args.inside:
            list(training.model.parameters())[4].register_hook(compute)
        if slow and step >= args.at_step and not args.inside:
            compute()
        training.step()
