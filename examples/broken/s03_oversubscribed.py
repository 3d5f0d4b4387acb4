"""S03: every rank computes with far more threads than the host has cores.

OMP_NUM_THREADS=8 paceline run --nproc-per-node 2 examples/broken/s03_oversubscribed.py --steps 500
"""

import threading

import torch
from training import Training, arguments

args = arguments(__doc__, threads=8, more=2, size=384)


def turn(ends: threading.Event) -> None:
    """Multiply until the training is over; torch lets go of the GIL meanwhile."""
    factor = torch.randn(args.size, args.size)
    while not ends.is_set():
        torch.mm(factor, factor)


ends = threading.Event()
with Training(args) as training:
    torch.set_num_threads(args.threads)
    factor = torch.randn(args.size, args.size)
    others = [threading.Thread(target=turn, args=(ends,), daemon=True) for _ in range(args.more)]
    for step in training.steps():
        if step == args.at_step:
            for other in others:
                other.start()
        for _ in range(4):
            torch.mm(factor, factor)
        training.step()
    ends.set()
