"""M09: rank 1 builds another model than the others, and DDP refuses it when it is wrapped.

paceline run --nproc-per-node 2 examples/broken/m09_other_model.py
"""

from training import RANK, Training, arguments, network

args = arguments(__doc__, hidden=96)
with Training(args, lambda: network(hidden=args.hidden if args.rank == RANK else 64)) as training:
    for _ in training.steps():
        training.step()
