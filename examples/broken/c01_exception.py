"""C01: rank 1 raises an exception; the others lose the connection to it and fail after it.

paceline run --nproc-per-node 2 examples/broken/c01_exception.py
"""

from training import Training, arguments

args = arguments(__doc__)
columns = {"label": 0}
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            print(columns["lable"])
        training.step()
