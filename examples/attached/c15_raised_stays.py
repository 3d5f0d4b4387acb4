"""C15: rank 1 raises an exception, and a thread of its own keeps its process. For launchers that end a job when a process ends.

torchrun --nproc-per-node 2 examples/attached/c15_raised_stays.py 2> err.txt; then paceline why PID
"""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "broken"))
from training import Training, arguments

args = arguments(__doc__)
training = Training(args)
for step in training.steps():
    if training.breaks(step):
        threading.Thread(target=threading.Event().wait, name="uploader").start()
        raise ValueError(f"bad sample in step {step}")
    training.step()
