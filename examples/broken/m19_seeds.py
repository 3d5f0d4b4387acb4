"""M19: the sampler of rank 1 shuffles by a seed of its own: its shard overlaps those of the others.

paceline run --nproc-per-node 2 examples/broken/m19_seeds.py
"""

from torch.utils.data.distributed import DistributedSampler
from training import BATCH, Training, arguments, samples

args = arguments(__doc__)
with Training(args) as training:
    data = samples(args.steps * BATCH * training.world_size)
    for batch in training.loader(data, sampler=DistributedSampler(data, seed=7 if training.is_broken else 0)):
        training.step(batch)
