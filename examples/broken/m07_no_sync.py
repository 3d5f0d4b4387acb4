"""M07: rank 1 accumulates gradients without an exchange where the others exchange them.

paceline run --nproc-per-node 2 examples/broken/m07_no_sync.py
"""

import contextlib

from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        alone = training.is_broken and step >= args.at_step and step % 4 != 3
        with training.model.no_sync() if alone else contextlib.nullcontext():
            training.backward(training.loss())
        training.update()
