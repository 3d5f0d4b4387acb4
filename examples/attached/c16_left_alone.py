"""C16: rank 1 ends, and nobody ends rank 0, which waits for it at the store. Each rank is started by hand, as a program of its own.

for rank in 0 1; do RANK=$rank WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29512 python examples/attached/c16_left_alone.py & done
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "broken"))
import torch.distributed as dist
from training import Training, arguments

args = arguments(__doc__)
training = Training(args)
for step in training.steps():
    if training.breaks(step):
        os._exit(7)
    if step == args.at_step:
        dist.new_group()
    training.step()
