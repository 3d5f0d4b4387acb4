"""M19: rank 1 reads the shard of its neighbour, and its own shard is read by nobody.

paceline run --nproc-per-node 2 examples/broken/m19_shard_twice.py
"""

from torch.utils.data.distributed import DistributedSampler
from training import BATCH, Training, arguments, samples

args = arguments(__doc__)
with Training(args) as training:
    data = samples(args.steps * BATCH * training.world_size)
    shard = (training.rank + training.is_broken) % training.world_size
    for batch in training.loader(data, sampler=DistributedSampler(data, rank=shard)):
        training.step(batch)
