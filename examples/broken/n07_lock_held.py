"""N07: rank 1 calls native code that sleeps and keeps Python's lock, so that no Python of this rank runs.

paceline run --nproc-per-node 2 examples/broken/n07_lock_held.py
"""

import ctypes

from training import Training, arguments

# PyDLL, unlike CDLL, keeps the lock during the call: what an extension does that forgets to release it.
library = ctypes.PyDLL(None)

args = arguments(__doc__, seconds=3600)
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            library.sleep(args.seconds)
        training.step()
