"""M10: rank 1 runs an older copy of the script than the others: one line differs, and with it the model.

paceline run --nproc-per-node 2 examples/broken/m10_other_version.py
"""

import os
import sys
import tempfile
from pathlib import Path

from training import RANK, Training, arguments, network

HIDDEN = 64
HERE = Path(__file__).resolve()
args = arguments(__doc__)
if args.rank == RANK and HIDDEN == 64:
    with tempfile.NamedTemporaryFile("w", prefix="paceline-broken-", suffix=".py", delete=False) as older:
        older.write(HERE.read_text().replace("HIDDEN = 64\n", "HIDDEN = 96\n", 1))
    paths = f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}"
    os.execve(sys.executable, [sys.executable, older.name, *sys.argv[1:]], {**os.environ, "PYTHONPATH": paths})
try:
    with Training(args, lambda: network(hidden=HIDDEN)) as training:
        for _ in training.steps():
            training.step()
finally:
    if HIDDEN != 64:
        HERE.unlink()
