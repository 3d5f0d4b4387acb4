"""C04: rank 1 is killed from outside, as a scheduler or a person would do it: no memory counter moves.

paceline run --nproc-per-node 2 examples/broken/c04_killed.py
"""

import os
import signal
import subprocess
import sys

from training import Training, arguments

args = arguments(__doc__, signal="SIGKILL")
KILL = "import os, sys; os.kill(int(sys.argv[1]), int(sys.argv[2]))"
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            number = int(signal.Signals[args.signal])
            subprocess.run([sys.executable, "-c", KILL, str(os.getpid()), str(number)], check=False)
        training.step()
