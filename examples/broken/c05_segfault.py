"""C05: native code in rank 1 reads address 0; no Python exception is raised, the process is gone.

paceline run --nproc-per-node 2 examples/broken/c05_segfault.py
"""

import ctypes

from training import Training, arguments

args = arguments(__doc__, abort=0)
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            ctypes.CDLL(None).abort() if args.abort else ctypes.string_at(0)
        training.step()
