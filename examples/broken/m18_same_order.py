"""M18: the sampler shuffles, and nobody tells it the epoch: each epoch has the same batches in the same order.

paceline run --nproc-per-node 2 examples/broken/m18_same_order.py
"""

from torch.utils.data.distributed import DistributedSampler
from training import BATCH, Training, arguments, samples

args = arguments(__doc__, epochs=4)
with Training(args) as training:
    data = samples(args.steps // args.epochs * BATCH * training.world_size)
    loader = training.loader(data, sampler=DistributedSampler(data))
    for _ in range(args.epochs):
        for batch in loader:
            training.step(batch)
