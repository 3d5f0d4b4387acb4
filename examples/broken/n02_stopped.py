"""N02: rank 1 stops itself with SIGSTOP, as a terminal or a debugger would, while the others wait.

paceline run --nproc-per-node 2 examples/broken/n02_stopped.py
"""

import os
import signal

from training import Training, arguments

args = arguments(__doc__)
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            os.kill(os.getpid(), signal.SIGSTOP)
        training.step()
