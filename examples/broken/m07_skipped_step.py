"""M07: rank 1 skips a batch whose loss is not a number, and with it the exchange that the others make.

paceline run --nproc-per-node 2 examples/broken/m07_skipped_step.py
"""

import math

from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step, (inputs, labels) in enumerate(training.loader()):
        if training.breaks(step):
            inputs[0, 0] = math.nan
        loss = training.loss((inputs, labels))
        if loss.isnan():
            continue
        training.backward(loss)
        training.update()
