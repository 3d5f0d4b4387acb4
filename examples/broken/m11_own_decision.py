"""M11: rank 1 stops early because of its own loss; nobody told the others, who go on and wait for it.

paceline run --nproc-per-node 2 examples/broken/m11_own_decision.py
"""

from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step, batch in enumerate(training.loader()):
        loss = training.loss(batch)
        training.backward(loss)
        training.update()
        own_loss = 0.0 if training.is_broken and step >= args.at_step else loss.item()
        if own_loss < 0.1:
            break
