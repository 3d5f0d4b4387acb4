"""M13: rank 1 lowers its learning rate because of its own loss; the models drift apart.

paceline run --nproc-per-node 2 examples/broken/m13_learning_rate.py
"""

from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            training.optimizer.param_groups[0]["lr"] = 0.001
        training.step()
