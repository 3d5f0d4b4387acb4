"""M12: every rank calls the model inside DDP and not DDP itself, so no gradient is exchanged.

paceline run --nproc-per-node 2 examples/broken/m12_bypassed.py
"""

import time

from torch import nn
from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for _ in training.steps():
        time.sleep(args.step_ms / 1000)
        inputs, labels = training.batch()
        training.backward(nn.functional.cross_entropy(training.model.module(inputs), labels))
        training.update()
